"""Completion in a shell: commands, flags, keys, choices, files."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from specsim.config.groups import chosen_by_default, names, names_for
from specsim.config.schema import GROUPS, TEXTS
from specsim.config.schema import defaults as settings
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import expanded
from specsim.files.yaml_file import is_path, read_yaml, shipped

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """Return the script that a shell's start-up file evaluates."""
    return (Path(__file__).parent / "completions" / f"specsim.{shell}").read_text(encoding="utf-8")


def in_bash(parser: argparse.ArgumentParser, line: str, breaks: str, kinds: Iterable[str]) -> list[str]:
    """Return bash's completions of the last word of a line; for bash a word begins behind a character of `breaks`.

    There are none within quotes.
    """
    try:
        words = shlex.split(line)[1:]
    except ValueError:
        return []
    if line[-1:].isspace():
        words.append("")
    if not words:
        return []
    cut = max([words[-1].rfind(each) + 1 for each in "=:" if each in breaks], default=0)
    found = candidates(parser, words, kinds)
    return [re.sub(r"([^\w@%+=:,./~\[\](){}*-])", r"\\\1", each[cut:]) for each in found]


def candidates(parser: argparse.ArgumentParser, words: Sequence[str], kinds: Iterable[str]) -> list[str]:
    """Return the completions of the last word, in order; those in ``=``, ``.`` or ``/`` can be completed further.

    Parameters
    ----------
    words : those after the command; the last, maybe empty, is being typed. kinds : what ``specsim list`` lists.
    """
    *before, typed = words
    path, parser = _command(parser, before)
    answers: Mapping[str, Callable[[], Iterable[str]]] = {
        "": lambda: () if any(word[:1] != "-" for word in before) else _below(parser),
        "run": lambda: _settings(before, typed),
        "tune": lambda: _settings(before, typed),
        "fidelity": lambda: _files(typed) if is_path(typed) else [*_studies(), *_settings(before, typed)],
        "list": lambda: kinds,
        "trace": lambda: _below(parser),
        "trace fetch": lambda: names("trace"),
        "completion": lambda: SHELLS,
        "profile": lambda: _profile(before, typed),
    }
    if before and before[-1] in ("-c", "--cfg"):
        found: Iterable[str] = ["job"]
    elif before and before[-1] == "--executor":
        found = _executors()
    elif before and before[-1] in ("-p", "--package"):
        found = (each.rstrip("=") for each in _keys(typed, _given(before)))
    elif path == "calibrate" and before[-1] in ("--profile", "--engine") and not is_path(typed):
        found = names(before[-1].removeprefix("--"))
    elif path == "tune" and before[-1] == "--export":
        found = import_module("specsim.search.exports").ENGINES
    elif (path, before[-1:]) in (("run", ["--against"]), ("tune", ["--schedulers"])):
        found = names("scheduler")
    elif typed.startswith("-"):
        found = (option for action in parser._actions for option in action.option_strings)
    else:
        found = answers.get(path, lambda: _files(typed))()
    return sorted({each for each in found if each.startswith(typed)})


def _executors() -> Iterable[str]:
    from specsim.runs.executors import NEEDS

    return NEEDS


def _studies() -> list[str]:
    return [file.stem for file in (shipped("conf") / "fidelity").glob("*.yaml")]


def _below(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the subcommands of a parser by name."""
    return next((each.choices for each in parser._actions if isinstance(each.choices, Mapping)), {})


def _command(parser: argparse.ArgumentParser, before: Sequence[str]) -> tuple[str, argparse.ArgumentParser]:
    """Return the command that the words name, such as ``trace fetch``, and its parser."""
    path: list[str] = []
    for word in before:
        if word in _below(parser):
            path.append(word)
            parser = _below(parser)[word]
    return " ".join(path), parser


def _given(before: Sequence[str]) -> dict[str, str]:
    return dict(word.lstrip("+").split("=", 1) for word in before if "=" in word)


def _settings(before: Sequence[str], typed: str) -> Iterator[str]:
    key, equals, value = typed.lstrip("+").partition("=")
    plus, given = typed[: len(typed) - len(typed.lstrip("+"))], _given(before)
    if equals:
        return (f"{plus}{key}={each}" for each in _values(key, value, given))
    return (plus + each for each in _keys(key, given) if each[:-1] not in given)


def _keys(typed: str, given: Mapping[str, str]) -> Iterator[str]:
    """Yield keys at the depth of the typed one: ``rps=``, or ``metrics.`` if there are keys below."""
    above, dot, _ = typed.rpartition(".")
    held = _held(above, given) if dot else {**_held("", given), **dict.fromkeys(GROUPS)}
    for name, value in held.items():
        yield f"{above}{dot}{name}{'.' if isinstance(value, Mapping) else '='}"


def _values(key: str, value: str, given: Mapping[str, str]) -> Iterator[str]:
    """Yield completions of a value; after a comma or an opening bracket, of the next one."""
    start = max(value.rfind(each) for each in ",([") + 1
    head, typed = value[:start], value[start:]
    above, _, name = key.rpartition(".")
    if (key in GROUPS or key == "cost_model") and not is_path(typed) and typed[:1] not in ("~", "."):
        found: Iterable[str] = names_for(key)
    elif key in (*GROUPS, *TEXTS, "plugins"):
        found = _files(typed)
    else:
        found = ("true", "false") if isinstance(_held(above, given).get(name), bool) else ()
    return (head + each for each in found)


def _held(above: str, given: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the mapping below a dotted key, in the chosen file or in the run itself."""
    group, *below = above.split(".")
    if group in GROUPS:
        chosen = given.get(group, chosen_by_default()[group])
        held: Any = _yaml(Path(chosen) if is_path(chosen) else shipped("conf") / group / f"{chosen}.yaml")
    else:
        below = [group, *below] if group else []
        held = settings()
    for name in below:
        held = held.get(name) if isinstance(held, Mapping) else None
    known = _of_mix(below) if group == "slo" else ()
    return {**dict.fromkeys(known), **(held if isinstance(held, Mapping) else {})}


def _of_mix(below: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that an SLO mix, or a class of one, may have."""
    from specsim.workload.slo import MIX_KEYS, OBJECTIVES

    return MIX_KEYS if not below else OBJECTIVES if below[0] == "classes" and len(below) == 2 else ()


def _profile(before: Sequence[str], typed: str) -> Iterable[str]:
    if before[-1] != "profile":
        return _files(typed)
    found: Iterable[str] = import_module("profiler.cli").SUBCOMMANDS
    return found


def _files(typed: str) -> Iterator[str]:
    """Yield the files and folders that complete a path; hidden ones only after a dot."""
    folder, slash, start = typed.rpartition("/")
    try:
        there = list(os.scandir(Path(folder + slash or ".").expanduser()))
    except (OSError, RuntimeError):
        return
    for each in there:
        if each.name.startswith(start) and (start or not each.name.startswith(".")):
            yield f"{folder}{slash}{each.name}{'/' if each.is_dir() else ''}"


def _yaml(file: Path) -> Mapping[str, Any]:
    try:
        return read_yaml(expanded(str(file)))
    except SpecsimError:
        return {}
