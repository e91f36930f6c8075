"""Options of every command that runs a sweep."""

from __future__ import annotations

import argparse

from specsim.errors import SpecsimError


def add_sweep_options(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add the options to a command's parser; `when` says beside what they have an effect."""
    parser.add_argument("--jobs", type=jobs, metavar="N", help=f"{when}processes that run at once (1)")
    parser.add_argument("--executor", type=executor, metavar="NAME", help=f"{when}local, ray, dask or slurm (local)")
    parser.add_argument("--keep", type=keep, metavar="WHAT", help=f"{when}runs: a folder each; summary: rows (runs)")
    parser.add_argument("--until", type=until, metavar="WIDTH", help=f'{when}seeds are added up to "2 points" (none)')
    parser.add_argument("--each", action="store_true", help=f"{when}a row for every seed, in place of means")


def jobs(word: str) -> int:
    """Return a number of processes.

    Raises
    ------
    SpecsimError
        When the word is none.
    """
    from specsim.runs.processes import MOST_JOBS

    if word.isdecimal() and 1 <= int(word) <= MOST_JOBS:
        return int(word)
    raise SpecsimError(f"--jobs {word}: expected a whole number between 1 and {MOST_JOBS}")


def executor(word: str) -> str:
    """Return what runs the points.

    Raises
    ------
    SpecsimError
        When the word is none of the executors.
    """
    from specsim.runs.executors import NEEDS

    if word in NEEDS:
        return word
    raise SpecsimError(f"--executor {word}: expected {', '.join(NEEDS)}")


def keep(word: str) -> str:
    """Return what a sweep keeps of a run.

    Raises
    ------
    SpecsimError
        When the word is none of the kinds.
    """
    if word in ("runs", "summary"):
        return word
    raise SpecsimError(f"--keep {word}: expected runs or summary")


def until(word: str) -> str:
    """Return the half width of the attainment's intervals that a sweep is to reach.

    Raises
    ------
    SpecsimError
        When it is none.
    """
    from specsim.runs.until import check_until

    check_until(word)
    return word
