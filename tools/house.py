"""The size of the house, as docs/architecture.md has it: `python -m tools.house` prints the table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from specsim import simulate
from specsim.cli import main as specsim
from specsim.errors import say

ROOT = Path(__file__).parents[1]
PACKAGE = f"{ROOT / 'specsim'}{os.sep}"
ASKED = {
    "specsim: files": (324, 150),
    "specsim: lines": (34_320, 25_000),
    "profiler: lines": (14_784, 10_000),
    "specsim, profiler, studies, tools: lines": (51_640, 40_000),
    "tests: lines": (41_222, 30_000),
    "functions that one request through `continuous` calls": (563, 300),
    "files that one request through `continuous` calls": (115, 45),
    "`slo_scale` from the command line: files": (23, 10),
    "`slo_scale` from the command line: moves": (38, 15),
    "`scheduler.num_speculative_tokens`: files": (40, 15),
    "`scheduler.num_speculative_tokens`: moves": (60, 30),
    "source files that name a top-level key (`acceptance_scale`)": (21, 3),
}
"""Counts at 152b521, where the key was `concurrency`, and those that were asked for."""
WALKED = {"slo_scale": 1.734591, "scheduler.num_speculative_tokens": 19}
"""Settings whose walk is counted, and values that nothing else in a run has."""
DEEP = 3
"""Containers within containers in which a value is looked for."""


def main() -> None:
    """Print the table."""
    files = {
        folder: sorted((ROOT / folder).rglob("*.py")) for folder in ("specsim", "profiler", "studies", "tools", "tests")
    }
    lines = {
        folder: sum(len(each.read_text(encoding="utf-8").splitlines()) for each in files[folder]) for folder in files
    }
    functions, called = calls()
    naming = [each for each in files["specsim"] if "acceptance_scale" in each.read_text(encoding="utf-8")]
    now = (
        len(files["specsim"]),
        lines["specsim"],
        lines["profiler"],
        sum(lines[folder] for folder in files if folder != "tests"),
        lines["tests"],
        functions,
        called,
        *(count for key, value in WALKED.items() for count in walk(key, value)),
        len(naming),
    )
    say("| | at 152b521 | asked | now |", "|---|---|---|---|")
    for (name, (before, wanted)), count in zip(ASKED.items(), now, strict=True):
        say(f"| {name} | {before:,} | {wanted:,} | {count:,} |")


def calls() -> tuple[int, int]:
    """Return the functions and the files of specsim that a run of one request calls, compiled and cached before.

    A lambda or a comprehension is part of the function that it stands in.
    """
    found = set[tuple[str, str]]()

    def called(frame: FrameType) -> None:
        found.add((frame.f_code.co_filename, frame.f_code.co_qualname.partition(".<locals>.<")[0]))

    simulate("continuous", "azure_code", requests=1)
    with profiled(called):
        simulate("continuous", "azure_code", requests=1, seed=1)
    return len(found), len({file for file, _ in found})


def walk(key: str, value: float) -> tuple[int, int]:
    """Return the files whose functions are handed a setting's value, and the moves of it between files.

    A function is handed a value that an argument equals, holds in containers or has in its text as a setting. A move is
    a pair of functions in two files, the caller and the called.
    """
    found, moves = set[str](), set[tuple[str, str, str, str]]()

    def called(frame: FrameType) -> None:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        if not any(_holds(frame.f_locals.get(name), value) for name in code.co_varnames[:count]):
            return
        found.add(code.co_filename)
        caller = next(_callers(frame), None)
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            by = caller.f_code
            moves.add((by.co_filename, by.co_qualname, code.co_filename, code.co_qualname))

    words = ["run", "+scheduler=vllm_spec", "trace=azure_code", "requests=1", f"{key}={value}"]
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        _command([*words, f"out={folder}/before"])
        with profiled(called):
            _command([*words, f"out={folder}/run"])
    return len(found), len(moves)


def _command(words: Sequence[str]) -> None:
    if specsim(words):
        raise RuntimeError(f"specsim {' '.join(words)} failed")


def _holds(held: Any, value: float, deep: int = 0) -> bool:
    if isinstance(held, str):
        return held == f"{value}" or f"={value}" in held
    if isinstance(held, int | float):
        return held == value
    within = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
    return deep < DEEP and any(_holds(each, value, deep + 1) for each in within)


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """Yield the calling frames of specsim, the nearest first."""
    back = frame.f_back
    while back is not None:
        if back.f_code.co_filename.startswith(PACKAGE):
            yield back
        back = back.f_back


@contextmanager
def profiled(called: Callable[[FrameType], None]) -> Iterator[None]:
    """Have `called` be told of each call of a function of specsim."""

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            called(frame)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
