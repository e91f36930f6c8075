"""Where compiled kernels are kept: a folder for each text of their sources, whose files are checked before they load.

numba tells a kernel's file from an older one by its time, and not what it takes from other files. It loads whatever its
cache holds.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

from specsim.files.kept import user_cache

SUMS = "checksums.json"
MOST_FOLDERS = 4
"""The newest are kept; others are of sources that have changed since."""
KERNELS = Path(__file__).parent
SOURCES = (*sorted(KERNELS.glob("*.py")), KERNELS.parent / "rng.py")
"""All that a kernel's code may be taken from."""


def cache_folder() -> Path | None:
    """Return a folder for the kernels of these sources: in $NUMBA_CACHE_DIR, else in the user's cache.

    Damaged files in it are removed. None where neither can be written to.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    for place in (*([Path(named)] if named else []), user_cache() / "numba"):
        folder = place / f"specsim-{_checksum(*SOURCES)[:16]}"
        with suppress(OSError):
            new = not folder.is_dir()
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            _remove_damaged(folder)
            if new:
                _remove_oldest(place)
            return folder
    return None


def seal(folder: Path) -> None:
    """Note the checksums of all that a folder holds; where that fails, all of it is compiled anew the next time."""
    partial = folder / f".{os.getpid()}.json"
    with suppress(OSError):
        partial.write_text(json.dumps(_checksums(folder)))
        partial.replace(folder / SUMS)


def _checksums(folder: Path) -> dict[str, str]:
    files = [each for each in sorted(folder.rglob("*")) if each.suffix in (".nbi", ".nbc")]
    return {str(each.relative_to(folder)): _checksum(each) for each in files}


def _remove_damaged(folder: Path) -> None:
    try:
        noted = json.loads((folder / SUMS).read_bytes())
    except (OSError, ValueError):
        noted = {}
    for name, found in _checksums(folder).items():
        if not isinstance(noted, dict) or noted.get(name) != found:
            (folder / name).unlink(missing_ok=True)


def _remove_oldest(place: Path) -> None:
    folders = sorted(place.glob("specsim-*"), key=lambda each: -each.stat().st_mtime)
    for each in folders[MOST_FOLDERS:]:
        rmtree(each, ignore_errors=True)


def _checksum(*files: Path) -> str:
    return sha256(b"".join(each.name.encode() + each.read_bytes() for each in files)).hexdigest()
