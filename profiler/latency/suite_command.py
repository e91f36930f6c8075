"""``specsim profile suite``: profile a list of pairs, in calls of a few minutes that resume."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NoReturn

from profiler.cli import Parser, minutes
from profiler.latency import command
from specsim.errors import SpecsimError, first_line, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.paths import shipped
from specsim.files.yaml_file import read_yaml

FAILED = 2
TO_BEGIN = 0.5
"""The least minutes left to begin a pair: drawing its weights and checking its kernel take about as long."""
QUICK = "-quick"
"""Suffix of the files of a coarse grid, which tells them from those of the full grid."""
OPTIONS = ("target", "draft", "random_weights", "tp", "link", "device", "dtype", "attention", "passes", "grid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.add_argument("suite", metavar="NAME", help="`gpu`, or a YAML file with a list of pairs")
    parser.add_argument("--minutes", type=minutes, metavar="X", help="stop after X minutes; run again to go on")
    parser.add_argument("--quick", action="store_true", help="a coarse grid; what it makes is named NAME-quick")
    parser.add_argument(
        "--out", type=expanded, default=Path("results/profiles"), metavar="DIR", help="default: %(default)s"
    )


def run(arguments: argparse.Namespace) -> int:
    """Profile every pair; return 3 if time ran out, 2 if a pair failed."""
    started = time.monotonic()
    pairs = read_pairs(_path(arguments.suite))
    codes = []
    for pair, words in pairs.items():
        name = f"{pair}{QUICK}" if arguments.quick else pair
        if _is_done(arguments.out / f"{name}.yaml"):
            print(f"{name}: done")
            continue
        used = (time.monotonic() - started) / 60
        if arguments.minutes is not None and 0 in codes and arguments.minutes - used < TO_BEGIN:
            print(f"time is up before {name}; the same command goes on")
            return command.TIME_IS_UP
        more = ["--quick"] if arguments.quick else []
        if arguments.minutes is not None:
            more += ["--minutes", str(max(arguments.minutes - used, 0.0))]
        out = ["--out", str(arguments.out / f"{name}.yaml"), "--figures", str(arguments.out)]
        codes.append(_profiled(name, [*words, *more, *out]))
        if codes[-1] == command.TIME_IS_UP:
            return command.TIME_IS_UP
    return max(codes, default=0)


def _is_done(profile: Path) -> bool:
    """Return whether a profile is newer than its samples; to measure missing points, delete it."""
    samples = profile.with_name(f"{profile.stem}.samples.parquet")
    return profile.is_file() and samples.is_file() and profile.stat().st_mtime_ns >= samples.stat().st_mtime_ns


class _PairParser(Parser):
    """A parser whose errors end a pair, not the suite."""

    def error(self, message: str) -> NoReturn:
        """Raise SpecsimError."""
        raise SpecsimError(message)


def _profiled(name: str, words: list[str]) -> int:
    """Profile one pair; print any error, which does not stop the others."""
    parser = _PairParser(prog=name)
    command.add_arguments(parser)
    try:
        return command.run(parser.parse_args(words))
    except SpecsimError as error:
        said = str(error)
    except Exception as error:  # Kernels, drivers and models may raise anything; the next pair may work.
        said = f"{type(error).__name__}: {first_line(error)}"
    sys.stderr.write(f"specsim: {name}: {said}\n")
    return FAILED


def _path(suite: str) -> Path:
    if "/" in suite or suite.endswith((".yaml", ".yml")):
        return expanded(suite)
    folder = shipped("conf") / "profiling"
    path = folder / f"{suite}.yaml"
    if not path.is_file():
        raise SpecsimError(f"suite {suite!r}: unknown{nearest(suite, [each.stem for each in folder.glob('*.yaml')])}")
    return path


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Return the command line of each pair of a suite file, by name.

    Raises
    ------
    SpecsimError
        When the file cannot be read, or a key is unknown or missing.
    """
    node = CheckedMapping(str(path), "", read_yaml(path, "suite file"))
    node.only(("pairs",), ("description",))
    named: dict[str, list[str]] = {}
    for pair in node.items("pairs", "pairs, each with a name"):
        pair.only(("name",), OPTIONS)
        name = pair.text("name", "a file name for the profile")
        if name in named:
            pair.refuse("name", f"{name!r} a second time; expected a name for each profile")
        if name.endswith(QUICK):
            pair.refuse("name", f"{name!r} ends in {QUICK}, as what --quick makes of another pair does")
        named[name] = _words(pair)
    return named


def _words(pair: CheckedMapping) -> list[str]:
    words: list[str] = []
    for key, value in pair.values.items():
        if key != "name":
            words += [f"--{key.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return words
