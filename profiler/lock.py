"""One run at a time on one output file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from specsim.errors import SpecsimError
from specsim.files.staging import remove_stale


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the right to write `path`, and remove the partial files that killed runs left in its folder.

    The operating system locks a file beside `path`, and releases it when the process ends for any reason.

    Raises
    ------
    SpecsimError
        When another run holds the lock, or the folder cannot be written or locked.
    """
    beside = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _locked(beside)
        remove_stale(path.parent, time.time())
    except BlockingIOError:
        raise SpecsimError(f"{path}: another run is writing it; expected one at a time, or another file") from None
    except OSError as error:
        raise SpecsimError(f"{path}: cannot be written under a lock: {error.strerror}") from None
    try:
        yield
    finally:
        beside.unlink(missing_ok=True)
        file.close()


def _locked(beside: Path) -> IO[bytes]:
    import fcntl

    file = beside.open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A run that has just ended removes the file: a lock on a removed file would exclude no other run.
        if not beside.exists() or beside.stat().st_ino != os.fstat(file.fileno()).st_ino:
            raise BlockingIOError
    except OSError:
        file.close()
        raise
    return file
