"""Results that are costly and always the same, kept in the user's cache from process to process.

A file appears whole or not at all, and one that is damaged is made anew.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from specsim.files.staging import Unwritable, in_one_step

MOST_BYTES = 1 << 28
"""Of all files together; 0 keeps none."""
CHECKSUM_BYTES = 4
"""At the end of a file, of all before it."""
Arrays = Mapping[str, np.ndarray[Any, Any]]


def user_cache() -> Path:
    """Return the folder of what can be downloaded or made again: $XDG_CACHE_HOME/specsim or ~/.cache/specsim.

    For a user who has no home it is one that cannot be made.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(named) if named else Path.home() / ".cache"
    except RuntimeError:
        folder = Path(os.devnull)
    return folder / "specsim"


def kept(name: str, of: object, made_by: Sequence[Path], make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `make` makes of `of`: from the cache, if they were made before.

    Parameters
    ----------
    name : what they are, a word.
    of : all that they depend on; its ``repr`` tells it from others.
    made_by : the source files of `make`. Arrays that another text of these has made are not used, nor those of
        another numpy or scipy.

    A file that is damaged or cannot be written costs time only: the arrays are made anew. The oldest files go where all
    together are larger than `MOST_BYTES`.
    """
    if not MOST_BYTES:
        return make()
    stamp = f"{of!r} {np.__version__} {version('scipy')}".encode() + b"".join(each.read_bytes() for each in made_by)
    file = user_cache() / "made" / f"{name}-{sha256(stamp).hexdigest()[:32]}.npz"
    content = read_whole(file)
    if content is not None:
        stored = np.load(io.BytesIO(content))
        return {each: stored[each] for each in stored.files}
    arrays = make()
    with suppress(OSError, Unwritable):
        written = io.BytesIO()
        np.savez(written, **dict(arrays))  # type: ignore[arg-type]
        write_whole(file, written.getbuffer())
        _trim(file.parent)
    return arrays


def read_whole(file: Path) -> memoryview | None:
    """Return what `write_whole` wrote; None where there is nothing, or it is damaged."""
    try:
        content = memoryview(file.read_bytes())
    except OSError:
        return None
    undamaged = content[-CHECKSUM_BYTES:] == _checksum(content[:-CHECKSUM_BYTES])
    return content[:-CHECKSUM_BYTES] if undamaged else None


def write_whole(file: Path, content: bytes | memoryview) -> None:
    """Put a file with its checksum into a folder; see `in_one_step`."""
    with in_one_step(file) as partial:
        partial.write_bytes(bytes(content) + _checksum(memoryview(content)))


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait for other processes that hold this lock, a file or a folder, then hold it; it ends with its process.

    Where there are no such locks no process waits.
    """
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            import fcntl

            opened = os.open(lock, os.O_RDONLY if lock.is_dir() else os.O_RDWR | os.O_CREAT)
            held.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _checksum(content: memoryview) -> bytes:
    return crc32(content).to_bytes(CHECKSUM_BYTES)


def _trim(folder: Path) -> None:
    """Remove the oldest files of a folder that holds too much."""
    files = sorted(((each.stat(), each) for each in folder.iterdir()), key=lambda each: -each[0].st_mtime_ns)
    held = 0
    for found, file in files:
        held += found.st_size
        if held > MOST_BYTES:
            file.unlink(missing_ok=True)
