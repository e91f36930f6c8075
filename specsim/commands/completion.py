"""Completion in a shell: commands, flags, keys, choices, files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from specsim.config.groups import chosen_by_default, names, names_for
from specsim.config.schema import GROUPS, TEXTS
from specsim.config.schema import defaults as settings
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import expanded
from specsim.files.yaml_file import is_path, read_yaml, shipped

MENDS = {
    "[=/:]": "[=/:.]",
    '"$BUFFER"': '"${(j: :)words[1,CURRENT]}"',
    '"$CURSOR"': '"${#${(j: :)words[1,CURRENT]}}"',
    "${script:-$1}": "${1/#\\~/$HOME}",
    "${script:-${words[1]}}": "${~words[1]}",
}
"""Of argcomplete's script: keys go on behind a dot; zsh's line may hold other commands; a command's path has a ~."""


def script(shell: str) -> str:
    """Return the script that a shell's start-up file evaluates."""
    return reduce(lambda text, mend: text.replace(*mend), MENDS.items(), shellcode(["specsim"], False, shell))


def complete(parser: argparse.ArgumentParser, kinds: Iterable[str]) -> None:
    """Tell the shell's script the completions, and leave the process; `kinds` is what ``specsim list`` lists."""
    before = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    given = dict(word.lstrip("+").split("=", 1) for word in before if "=" in word)

    def found(prefix: str, action: argparse.Action, parser: argparse.ArgumentParser, **_: object) -> Any:
        of_files = parser.prog in ("specsim import", "specsim sweep")
        answers: Mapping[str, Callable[[], Iterable[str]]] = {
            "settings": lambda: _files(prefix) if of_files else _settings(prefix, given),
            "study": lambda: _files(prefix) if is_path(prefix) else [*_studies(), *_settings(prefix, given)],
            "cfg": lambda: ["job"],
            "executor": lambda: import_module("specsim.runs.executors").NEEDS,
            "export": lambda: import_module("specsim.search.exports").ENGINES,
            **dict.fromkeys(("against", "schedulers"), lambda: names("scheduler")),
            **dict.fromkeys(("profile", "engine"), lambda: _files(prefix) if is_path(prefix) else names(action.dest)),
            "kind": lambda: kinds,
            "name": lambda: names("trace"),
        }
        return answers.get(action.dest, lambda: _files(prefix))()

    completer: Any = found
    _Finder()(parser, always_complete_options=False, default_completer=completer)


class _Finder(CompletionFinder):
    """A word behind a flag is one more setting or file; zsh puts no space if the first completion can go on."""

    def collect_completions(self, active_parsers: list[Any], *rest: Any) -> list[str]:
        parser = active_parsers[-1]
        parser.active_actions = parser.active_actions or parser._get_positional_actions()[-1:]
        found = super().collect_completions(active_parsers, *rest)
        return sorted(found, key=lambda each: (not each.endswith(("=", "/", ".")), each))


def _studies() -> list[str]:
    return [file.stem for file in (shipped("conf") / "fidelity").glob("*.yaml")]


def _settings(typed: str, given: Mapping[str, str]) -> Iterator[str]:
    key, equals, value = typed.lstrip("+").partition("=")
    plus = typed[: len(typed) - len(typed.lstrip("+"))]
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
