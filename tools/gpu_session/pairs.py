"""The pairs of a session: each with the options of `specsim profile latency` that it is measured with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from profiler.latency import command
from specsim.commands.parser import Parser
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import read_yaml
from tools.gpu_session.state import State

QUICK = "-quick"
"""Suffix of what a smoke test makes, which tells it from a profile."""
OPTIONS = ("target", "draft", "random_weights", "tp", "link", "device", "dtype", "attention", "passes", "grid")


class _PairParser(Parser):
    """A parser whose errors end a pair, not the session."""

    def error(self, message: str) -> NoReturn:
        """Raise SpecsimError."""
        raise SpecsimError(f"{self.prog}: {message}")


def arguments_of(name: str, words: list[str]) -> argparse.Namespace:
    """Return the arguments of `specsim profile latency` for a pair.

    Raises
    ------
    SpecsimError
        When a word is wrong.
    """
    parser = _PairParser(prog=name)
    command.add_arguments(parser)
    return parser.parse_args(words)


def first_arguments(state: State) -> argparse.Namespace:
    """Return the arguments of a session's first pair, which its checks and its engine are about."""
    name, words = next(iter(state.pairs.items()))
    return arguments_of(name, [*words, "--out", str(state.folder / f"{name}.yaml")])


def path_of(pairs: str) -> Path:
    """Return the file of a shipped list's name, or the path itself.

    Raises
    ------
    SpecsimError
        When no list has that name.
    """
    if "/" in pairs or pairs.endswith((".yaml", ".yml")):
        return expanded(pairs)
    path = Path(__file__).with_name(f"{pairs}.yaml")
    if not path.is_file():
        known = [each.stem for each in path.parent.glob("*.yaml")]
        raise SpecsimError(f"pairs {pairs!r}: unknown{nearest(pairs, known)}")
    return path


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Return the command line of each pair of a list, by name.

    Raises
    ------
    SpecsimError
        When the file cannot be read, or a key is unknown or missing.
    """
    node = CheckedMapping(str(path), "", read_yaml(path, "list of pairs"))
    node.only(("pairs",), ("description",))
    named: dict[str, list[str]] = {}
    for pair in node.items("pairs", "pairs, each with a name"):
        pair.only(("name",), OPTIONS)
        name = pair.file_name("name")
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
            given = [*map(str, value if isinstance(value, list) else [value])]
            if any(each.startswith("-") for each in given):
                pair.refuse(key, f"{' '.join(given)!r} holds an option; expected values")
            words += [f"--{key.replace('_', '-')}", *given]
    return words
