"""The size of the house, as docs/architecture.md has it: `python -m tools.house` prints the table."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from specsim import simulate
from specsim.errors import say

ROOT = Path(__file__).parents[1]
ASKED = {
    "specsim: files": (324, 150),
    "specsim: lines": (34_320, 25_000),
    "profiler: lines": (14_784, 10_000),
    "specsim, profiler, studies, tools: lines": (51_640, 40_000),
    "tests: lines": (41_222, 30_000),
    "functions that one request through `continuous` calls": (563, 300),
    "files that one request through `continuous` calls": (115, 45),
}
"""Counts at 152b521, and those that were asked for."""


def main() -> None:
    """Print the table."""
    files = {
        folder: sorted((ROOT / folder).rglob("*.py")) for folder in ("specsim", "profiler", "studies", "tools", "tests")
    }
    lines = {
        folder: sum(len(each.read_text(encoding="utf-8").splitlines()) for each in files[folder]) for folder in files
    }
    functions, called = calls()
    now = (
        len(files["specsim"]),
        lines["specsim"],
        lines["profiler"],
        sum(lines[folder] for folder in files if folder != "tests"),
        lines["tests"],
        functions,
        called,
    )
    say("| | at 152b521 | asked | now |", "|---|---|---|---|")
    for (name, (before, wanted)), count in zip(ASKED.items(), now, strict=True):
        say(f"| {name} | {before:,} | {wanted:,} | {count:,} |")


def calls() -> tuple[int, int]:
    """Return the functions and the files of specsim that a run of one request calls, compiled and cached before.

    A lambda or a comprehension is part of the function that it stands in.
    """
    package, found = str(ROOT / "specsim"), set[tuple[str, str]]()

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and code.co_name != "<module>":
            found.add((code.co_filename, code.co_qualname.partition(".<locals>.<")[0]))

    simulate("continuous", "azure_code", requests=1)
    sys.setprofile(called)
    simulate("continuous", "azure_code", requests=1, seed=1)
    sys.setprofile(None)
    return len(found), len({file for file, _ in found})


if __name__ == "__main__":
    main()
