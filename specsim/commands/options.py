"""Options that several commands have, and the words that they take."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded


def added(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], said: str, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Return the parser of a command that is added to the others; `said` is its line of help."""
    raw = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = commands.add_parser(name, help=said, epilog=epilog, formatter_class=raw)
    parser.set_defaults(command=command)
    return parser


def add_search_options(parser: argparse.ArgumentParser, target: str, out: Path) -> None:
    """Add the options of a search: `find` and `tune`."""
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    said = f"of requests that meet their objectives ({target}%)"
    parser.add_argument("--target", default=target, metavar="SHARE", help=said)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that run at once (1)")
    parser.add_argument("--executor", default="local", metavar="NAME", help="local, ray, dask or slurm")
    parser.add_argument("--out", type=expanded, default=out, metavar="DIR", help=f"of runs and results ({out})")


def how(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return how a search runs, as `specsim.search.find.search` takes it."""
    return {"jobs": arguments.jobs, "executor": arguments.executor, "say": told, "progress": True}


def told(line: str) -> None:
    """Print a line about the progress of a search."""
    say(line, error=True, flush=True)


@contextmanager
def resumable(root: Path) -> Iterator[None]:
    """Tell an interruption how the search in a folder goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the runs that ended are kept; the same command with --out {root} goes on") from None


def asked_for(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options of these names that were typed."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def share(flag: str, word: str) -> float:
    """Return a share that is written as one, or in %; SpecsimError where it is none."""
    number, percent = word.removesuffix("%"), word.endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = float("nan")
    if not 0 < share <= 1:
        raise SpecsimError(f"{flag} {word}: expected a share above 0 up to 1, or a percentage such as 90%")
    return share
