"""The state of a session: one folder with all that was done and measured, and as one file to bring home."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from profiler.text import write
from specsim.errors import SpecsimError, first_line, say
from specsim.files.staging import in_one_step

BEGUN, ENDED = "begun", "ended"
"""Quantities of the rows around a check; a check that begun and never ended took its process with it."""
FORMAT = 1
FILE = "session.json"
LOG = "session.log"
ROWS = "rows.jsonl"
FAILED, OTHER_GPU = 2, 6
"""Exit codes of a stage."""
STAGES = ("check", "sweep", "engine", "rest")


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a check: `value` in `unit` of `quantity` in `case`; None where `note` says why there is none."""

    check: str
    case: str
    quantity: str
    value: float | None = None
    unit: str = ""
    note: str = ""

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value:.4g}{' ' + self.unit if self.unit else ''}"
        return f"{self.check} {self.case}: {self.quantity}{shown}{'; ' + self.note if self.note else ''}"


class OtherGpu(SpecsimError):
    """The session's GPU is of another model."""


@dataclass(slots=True)
class State:
    """A session's folder; `pairs` holds each pair's options, `machines` the facts of every machine it ran on."""

    folder: Path
    pairs: dict[str, list[str]]
    quick: bool = False
    machines: list[dict[str, Any]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Keep a row."""
        line = json.dumps({**asdict(row), "at": datetime.now(UTC).isoformat(timespec="seconds")})
        path = self.folder / ROWS
        held = path.read_bytes() if path.exists() else b""
        # A kill may have left the line break out.
        ending = "\n" if held and not held.endswith(b"\n") else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{ending}{line}\n")

    def tell(self, row: Row) -> None:
        """Keep a row, and show it."""
        self.add(row)
        say(row, flush=True)

    def rows(self) -> list[Row]:
        """Return all rows; a line that a kill cut short is left out."""
        path, rows = self.folder / ROWS, []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            values.pop("at")
            rows.append(Row(**values))
        return rows

    def begin(self, check: str) -> None:
        """Note that a check begins."""
        self.add(Row(check, "", BEGUN))

    def end(self, check: str) -> None:
        """Note that a check ended, however it ended."""
        self.add(Row(check, "", ENDED))

    def ended(self) -> set[str]:
        """Return the checks that are not to run again: those that ended, and those that ended their process twice."""
        rows = self.rows()
        begun = [row.check for row in rows if row.quantity == BEGUN]
        return {row.check for row in rows if row.quantity == ENDED} | {each for each in begun if begun.count(each) > 1}

    def samples(self, pair: str, again: bool = False) -> Path:
        """Return the samples file of a pair, or of its points measured once more."""
        return self.folder / f"{pair}{'.again' if again else ''}.samples.parquet"

    def write(self) -> None:
        """Replace the file in one step."""
        values = {key: value for key, value in asdict(self).items() if key != "folder"}
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / FILE, json.dumps({"format": FORMAT, **values}, indent=1))

    def finish(self, stage: str) -> None:
        """Note that a stage is done."""
        self.done = [*(each for each in self.done if each != stage), stage]
        self.write()

    def join(self, machine: dict[str, Any]) -> None:
        """Record the machine that goes on; of another driver or host a line on standard error says so.

        Raises
        ------
        OtherGpu
            When its GPU is of another model: times of two models make no profile.
        """
        before = self.machines[-1] if self.machines and machine not in self.machines else machine
        if before["hardware"] != machine["hardware"]:
            raise OtherGpu(
                f"{self.folder}: a session on {before['hardware']!r}, and this is {machine['hardware']!r}; "
                "expected another --state folder"
            )
        for key, value in machine.items():
            if before.get(key) != value:
                say(f"note: the session goes on under {key} {value!r}, before {before.get(key)!r}", error=True)
        if machine not in self.machines:
            self.machines.append(machine)
            self.write()


def read_state(folder: Path) -> State | None:
    """Return the state in a folder, None where there is none.

    Raises
    ------
    SpecsimError
        When its file is no session's.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("format") != FORMAT:
            raise ValueError
        return State(folder, **values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise SpecsimError(f"{path}: holds no session; expected what `python -m tools.gpu_session` writes") from None


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
