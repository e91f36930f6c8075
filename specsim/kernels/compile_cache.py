"""Where compiled kernels are kept: one file for each text of their sources, machine and numba, whole or not there.

numba keeps a file for each kernel. Two processes that fill one folder at once leave kernels of both beside each other,
and those crash. So each process has a folder of its own, and the kernels of one process are kept as one file.
"""

from __future__ import annotations

import faulthandler
import io
import os
import platform
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from specsim.files.kept import one_at_a_time, read_whole, user_cache, write_whole
from specsim.files.staging import Unwritable

MOST_KEPT = 16
"""The newest are kept; others are of sources that have changed since."""
KERNELS = Path(__file__).parent
SOURCES = (*sorted(KERNELS.glob("*.py")), KERNELS.parent / "rng.py")
"""All that a kernel's code may be taken from."""
SUFFIX = ".kernels"
PLACE = "NUMBA_CACHE_DIR"
NOT_OF_CODE = (PLACE, "NUMBA_NUM_THREADS")
"""Settings of numba's that no kernel depends on; joblib sets the second in its processes."""
_watching: list[io.FileIO] = []


def kept_file() -> Path | None:
    """Return the file for the kernels of these sources: in $NUMBA_CACHE_DIR, else in the user's cache.

    None where neither can be written to.
    """
    named = os.environ.get(PLACE)
    for place in (*([Path(named)] if named else []), user_cache() / "numba"):
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
            return place / f"specsim-{_key()[:16]}{SUFFIX}"
    return None


def distrust() -> None:
    """Forget what is kept: a process that used it has crashed."""
    file = kept_file()
    if file is not None:
        _remove(file)


@contextmanager
def folder_of_kernels(file: Path | None, folder: Path) -> Iterator[bool]:
    """Yield whether a process's own empty folder holds the kept kernels now; if not, those of its end are kept.

    One process at a time compiles, and the others wait for it.
    """
    if file is None or _unpacked(file, folder):
        yield file is not None
        return
    with one_at_a_time(file.with_suffix(".lock")):
        if _crashed(file):
            _remove(file, _mark(file))
        if _unpacked(file, folder):
            yield True
            return
        yield False
        with suppress(OSError, Unwritable):
            write_whole(file, _packed(folder))
            _remove_oldest(file.parent)


def watch(file: Path) -> None:
    """Let a crash of this process leave a mark, at which what is kept is distrusted."""
    if not faulthandler.is_enabled():
        with suppress(OSError):
            _watching.append(io.FileIO(_mark(file), "ab"))
            faulthandler.enable(_watching[-1], all_threads=False)


def _mark(file: Path) -> Path:
    return file.with_suffix(".crashed")


def _crashed(file: Path) -> bool:
    try:
        return _mark(file).stat().st_size > 0
    except OSError:
        return False


def _unpacked(file: Path, folder: Path) -> bool:
    """Return whether trusted kernels were kept, and are in the folder now."""
    content = None if _crashed(file) else read_whole(file)
    if content is None:
        return False
    with zipfile.ZipFile(io.BytesIO(content)) as kernels:
        kernels.extractall(folder)
    return True


def _packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as kernels:
        for each in sorted(folder.rglob("*.nb*")):
            kernels.write(each, each.relative_to(folder))
    return content.getvalue()


def _remove_oldest(place: Path) -> None:
    kept = sorted(place.glob(f"specsim-*{SUFFIX}"), key=lambda each: -each.stat().st_mtime)
    for each in kept[MOST_KEPT:]:
        _remove(each, _mark(each), each.with_suffix(".lock"))


def _remove(*files: Path) -> None:
    for each in files:
        with suppress(OSError):
            each.unlink(missing_ok=True)


def _key() -> str:
    """Return a checksum of all on which compiled kernels depend: numba itself looks at less.

    A source's path and time are what numba knows it by.
    """
    from llvmlite import binding

    sources = [(str(each), each.stat().st_mtime_ns, each.read_bytes()) for each in SOURCES]
    machine = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), platform.python_version()
    asked = sorted(each for each in os.environ.items() if each[0].startswith("NUMBA_") and each[0] not in NOT_OF_CODE)
    return sha256(repr((sources, machine, asked, version("numba"), version("llvmlite"))).encode()).hexdigest()
