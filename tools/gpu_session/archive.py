"""A session's folder as one file to bring home, replaced in one step."""

from __future__ import annotations

import zipfile
from pathlib import Path

from specsim.errors import SpecsimError, first_line
from specsim.files.staging import in_one_step
from tools.gpu_session.state import FILE, LOG

MOST_BYTES = 16 * 2**20
MOST_LOG_BYTES = 2 * 2**20
BROUGHT = (".json", ".jsonl", ".parquet", ".log", ".yaml")
DRAWN = (".png",)


def pack(folder: Path, path: Path) -> int:
    """Write the archive; return its bytes. Figures stay behind where it would exceed 16 MiB, and so does an old log.

    Raises
    ------
    SpecsimError
        When it cannot be written.
    """
    with in_one_step(path) as partial:
        for suffixes in ((*BROUGHT, *DRAWN), BROUGHT):
            _write(folder, partial, suffixes)
            if partial.stat().st_size < MOST_BYTES:
                break
    return path.stat().st_size


def _write(folder: Path, path: Path, suffixes: tuple[str, ...]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if file.suffix in suffixes and not file.name.startswith(".") and file.is_file():
                content = file.read_bytes()
                archive.writestr(file.name, content[-MOST_LOG_BYTES:] if file.name == LOG else content)


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into a folder that holds no session.

    Raises
    ------
    SpecsimError
        When the folder holds a session, or the file is no archive of one.
    """
    if (folder / FILE).exists():
        raise SpecsimError(f"--resume {path}: {folder} holds a session; expected an empty folder, or no --resume")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if FILE not in names or any(Path(name).name != name or name.startswith(".") for name in names):
                raise SpecsimError(f"--resume {path}: no archive of `python -m tools.gpu_session`")
            folder.mkdir(parents=True, exist_ok=True)
            archive.extractall(folder)
    except FileNotFoundError:
        raise SpecsimError(f"--resume {path}: no such file") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise SpecsimError(f"--resume {path}: cannot be read as an archive: {first_line(error)}") from None
