"""Words of the command line and values of Python, as points of a sweep.

A mistake, such as an unknown key, a key given twice or a value that is no setting, is a SpecsimError of one line.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from specsim.config.groups import LABELS, Choice, chosen_by_default, names, names_for, rates_typed, shipped_names
from specsim.config.schema import GROUPS, TEXTS, TYPED, declared, known_keys
from specsim.config.synonyms import for_word
from specsim.config.values import PythonValue, fitting, python_value, several, several_names, unquoted
from specsim.errors import SpecsimError, nearest, represented
from specsim.files.checked_mapping import shown
from specsim.files.yaml_file import is_path, peek_yaml, shipped

Point = Mapping[str, str | PythonValue]
"""Key to value: text as typed, or a value from Python. Groups, `cost_model` and `out` are always text."""
Typed = TypeVar("Typed", str, str | PythonValue)


def points(words: Sequence[str], *, sweep: bool) -> list[dict[str, str]]:
    """Return the points that the words span, one without commas; the last word runs fastest.

    Raises
    ------
    SpecsimError
        For a word that is no ``key=value``, an unknown key, a key given twice, and several values when `sweep` is
        False.
    """
    return product(axes_typed(words, sweep=sweep))


def axes_typed(words: Sequence[str], *, sweep: bool) -> dict[str, list[str]]:
    """Return the values of each key in words; the errors are those of `points`."""
    axes: dict[str, list[str]] = {}
    for word in words:
        key, value = _setting(word)
        if key in axes:
            raise SpecsimError(f"{key}: given twice; expected one value, or -m {key}=a,b for a sweep")
        axes[key] = _values(key, value, sweep)
    return axes


def check_typed(keys: Iterable[str], where: str) -> None:
    """Refuse keys of a file that only the command line and Python set; `where` names the file."""
    for key in keys:
        if key in TYPED:
            raise SpecsimError(f"{where}: {key}: no file sets it; expected {key}= on the command line or in Python")


def _setting(word: str) -> tuple[str, str]:
    """Return key and value of a word; ``+`` and ``++`` mean nothing more, and spaces around ``=`` nothing."""
    key, equals, value = word.partition("=")
    key, value = key.strip().removeprefix("+").removeprefix("+"), value.strip()
    if not equals or not key:
        raise SpecsimError(f"{word!r} is no setting; expected key=value in one word")
    check_key(key)
    if not value:
        hint = nearest("", names(key)) if key in GROUPS else "; expected one, or null for none"
        raise SpecsimError(f"{key}=: no value{hint}")
    return key, value


def product(axes: Mapping[str, Sequence[Typed]]) -> list[dict[str, Typed]]:
    """Return every combination of the values of each key, the last key fastest."""
    for key, values in axes.items():
        meant = [_meant(str(value)) for value in values]
        if len(set(meant)) < len(meant):
            twice = next(value for value, each in zip(values, meant, strict=True) if meant.count(each) > 1)
            raise SpecsimError(f"{key}={twice}: is given twice in the sweep")
        if not values:
            raise SpecsimError(f"{key}: expected at least one value")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _meant(value: str) -> str | float:
    """Return the number that a value is, so that 2 and 2.0 are one."""
    try:
        return float(value)
    except ValueError:
        return value


def _values(key: str, value: str, sweep: bool) -> list[str]:
    setting = f"{key}={value}"
    if key == "out" and ((sweep and "," in value) or value[:1] in ("[", "{") or value in ("true", "false")):
        raise SpecsimError(f"{setting}: expected one folder")
    if key == "out":
        return [unquoted(value)]
    if key in GROUPS or key in TEXTS:
        split = sweep or not is_path(value)
        found = several_names(setting, value, lambda: names_for(key), split=split)
    else:
        found = several(setting, value)
    if len(found) > 1 and not sweep:
        raise SpecsimError(f"{setting} holds {len(found)} values; expected one, or -m for a sweep")
    return found


def check_key(key: str) -> None:
    """Refuse a key that no run has."""
    known = known_keys()
    head, *rest = key.split(".")
    if head not in known:
        whole = {name for name, leaves in known.items() if rest or name in GROUPS or not leaves}
        names = whole | {f"{name}.{leaf}" for name in {*known} - whole for leaf in known[name]}
        hint = for_word(key) or _below_a_group(key) or for_word(key, misspelt=not rest)
        raise SpecsimError(f"{key}: unknown key{hint or nearest(head, names, 0.8)}")
    if head not in GROUPS and (rest or known[head]) and rest not in [[each] for each in known[head]]:
        raise SpecsimError(f"{key}: unknown key{nearest('.'.join(rest), known[head])}")


def _below_a_group(key: str) -> str:
    """Return the hint at a key of that name in the file of a group, with a choice that has it; empty where none has."""
    for group, default in chosen_by_default().items():
        for choice in (default, *sorted(shipped_names(group))):
            held = peek_yaml(shipped("conf") / group / f"{choice}.yaml")
            if key in {*held} - LABELS[group] and _is_set_whole(held[key]):
                beside = "" if choice == default else f" with {group}={choice}"
                return f"; did you mean {f'{group}.{key}'!r}{beside}?"
    return ""


def _is_set_whole(held: Any) -> bool:
    """Return whether a plain value may stand in the place of what is held: no mapping but a distribution."""
    return not isinstance(held, Mapping) or SHAPE in held


def idle_shape(trace: Choice, key: str) -> str | None:
    """Return the distribution that does not read a part of a length, which no configuration then holds; or None."""
    *above, name = key.split(".")
    held: Any = trace.values
    for each in above:
        held = held.get(each) if isinstance(held, Mapping) else None
    return held.get(SHAPE) if above and isinstance(held, Mapping) and name not in held else None


RIVALS = {"tpot_s": "tpot_ratio", "tpot_ratio": "tpot_s"}
"""Keys of an objective of which one is given: setting one takes the file's other away."""

SHAPE = "distribution"
"""A key whose value says which others stand beside it: choosing another takes the file's away."""

DEFAULTS = ("tpot_s", "ttft_s", "max_tokens")
"""Keys of a mix that hold for the classes without their own."""


def put(tree: dict[str, Any], settings: Mapping[str, str | PythonValue], chosen: Mapping[str, str]) -> None:
    """Put settings (dotted key to text, or to a value from Python) into a tree of plain values.

    Mappings are merged, all else is replaced.

    Keys of the group `slo` need not be there: a mix may hold more than its file states, and its reader judges them.

    Parameters
    ----------
    chosen : what each group was set to, for messages.

    Raises
    ------
    SpecsimError
        One line with the nearest key where there is no such key, or a value that changes nothing.
    """
    said: set[str] = set()
    shapes: dict[str, Any] = {}
    held = tree["slo"].get("classes")
    classes = frozenset(held if isinstance(held, Mapping) else ())
    for key, text in settings.items():
        setting = f"{key}={text}"
        holder, name = _holder(tree, key, classes, f"{setting}: {chosen.get(key.partition('.')[0], 'the run')}")
        there = isinstance(holder, list) or name in holder
        old = holder[name] if there else None
        new = fitting(setting, text, old)
        if new == {} and (isinstance(old, Mapping) or not there):
            raise SpecsimError(f"{setting}: changes nothing: a mapping is merged into what is there")
        former = _shapes(key, old) if name != SHAPE else {key: old}
        holder[name] = _merged(old, new)
        said.update(_leaves(key, new))
        shapes = former | shapes
    for key in said:
        if key.startswith("slo."):
            _give_way(tree, key, said)
    for key in said & shapes.keys():
        _drop_shape(tree, key, shapes[key], said)
    for key in settings:
        _drop_idle(tree, key)
    if any(key.startswith("slo.classes.") for key in said):
        _forget_defaults(tree["slo"], said)


def _holder(tree: dict[str, Any], key: str, classes: frozenset[str], where: str) -> tuple[Any, Any]:
    """Return the mapping or list that holds a key, and its name or place there; `classes` are those of the mix."""
    above: list[str] = []
    node: Any = tree
    name, *below = key.split(".")
    for place, each in enumerate(below, start=1):
        above.append(name)
        node = node[int(name) if isinstance(node, list) else name]
        if isinstance(node, list) and each.isdigit() and int(each) < len(node):
            name = each
            continue
        known = {str(held): value for held, value in node.items()} if isinstance(node, Mapping) else {}
        may_be_new = above[0] == "slo" and not (for_word(key) if place == 1 else above[1:] == ["classes"] and classes)
        if each not in known and not (may_be_new and isinstance(node, dict)):
            higher = ".".join(_handed_down(tree, key.split(".")))
            own = f"; expected {each}=, a key of the run" if each in known_keys() else for_word(key)
            keys = {name for name, held in known.items() if place < len(below) or _is_set_whole(held)}
            hint = f"; expected {higher}" if higher else own or nearest(each, keys - LABELS[above[0]])
            raise SpecsimError(f"{where} has no such key{hint}")
        if each not in known and place < len(below):
            node[each] = {}
        name = each
    return node, int(name) if isinstance(node, list) else name


def _handed_down(tree: Mapping[str, Any], path: Sequence[str]) -> Sequence[str]:
    """Return the path of the key above that is handed down to `path`, `path` itself where it is there, () for none."""
    nodes: list[Any] = [tree]
    for count, name in enumerate(path):
        if not (isinstance(nodes[-1], Mapping) and name in nodes[-1]):
            above = next((each for each in range(count - 1, 0, -1) if name in nodes[each]), 0)
            return _handed_down(tree, [*path[:above], *path[count:]]) if above else ()
        nodes.append(nodes[-1][name])
    return path


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def _leaves(key: str, value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield key
    else:
        for name, each in value.items():
            yield from _leaves(f"{key}.{name}", each)


def _shapes(key: str, value: Any) -> dict[str, Any]:
    """Return by dotted key the distributions in a value."""
    if not isinstance(value, Mapping):
        return {}
    below = {k: v for name, each in value.items() for k, v in _shapes(f"{key}.{name}", each).items()}
    return below | ({f"{key}.{SHAPE}": value[SHAPE]} if SHAPE in value else {})


def _drop_shape(tree: Mapping[str, Any], key: str, former: Any, said: set[str]) -> None:
    """Take away what the file states beside another distribution than the one that was chosen."""
    above = key.split(".")[:-1]
    node = _at(tree, above)
    if node.get(SHAPE, former) != former:
        for name in [each for each in node if ".".join((*above, each)) not in said]:
            del node[name]


def _drop_idle(tree: Mapping[str, Any], key: str) -> None:
    """Take away what was set of a length and its distribution does not read, as another point of a sweep may."""
    *above, name = key.split(".")
    node = _at(tree, above)
    if isinstance(shape := node.get(SHAPE), str) and node.get(name) is not None:
        from specsim.workload.entry import LENGTHS  # The names of keys need no reader of files.

        if shape in LENGTHS and any(name in each for each in LENGTHS.values()) and name not in LENGTHS[shape]:
            del node[name]


def _give_way(tree: Mapping[str, Any], key: str, said: set[str]) -> None:
    """Take away the rival of an objective that is set."""
    *above, name = key.split(".")
    if name in RIVALS and ".".join((*above, RIVALS[name])) not in said:
        node = _at(tree, above)
        if node.get(name) is not None:
            node.pop(RIVALS[name], None)


def _at(tree: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the mapping at a path of keys and list indices, {} where another setting has taken it away."""
    node: Any = tree
    try:
        for each in path:
            node = node[int(each) if isinstance(node, list) else each]
    except (LookupError, TypeError, ValueError):
        return {}
    return node if isinstance(node, dict) else {}


def _forget_defaults(mix: dict[str, Any], said: set[str]) -> None:
    """Take away what the file, not the user, says for all classes where each class by now says its own."""
    classes = mix["classes"]
    bodies = [body for body in classes.values() if isinstance(body, Mapping)] if isinstance(classes, Mapping) else []
    for name in DEFAULTS:
        own = all(any(body.get(each) is not None for each in (name, RIVALS.get(name, name))) for body in bodies)
        if bodies and own and f"slo.{name}" not in said and mix.get("classes_from") != "trace":
            mix.pop(name, None)


Given = str | PythonValue
HANDED = ("scheduler", "trace", "profile", "slo")
"""Groups that an object may stand for."""
ALSO = dict(zip(HANDED, ("Scheduler | Callable[[], Scheduler]", "Trace | DataFrame", "Profile", "SloMix"), strict=True))
ALSO["acceptance"] = "float | Sequence[float]"
"""By group the further types that Python may hand over in the place of a name or a path."""

Function = TypeVar("Function", bound=Callable[..., Any])


def with_keys(function: Function) -> Function:
    """Put every key of a run into the signature, before ``**settings``: `help`, Jupyter and editors show them.

    A refusal of several values where one was expected says how several are given.
    """

    @wraps(function)
    def told(*given: Any, **settings: Any) -> Any:
        try:
            return function(*given, **settings)
        except SpecsimError as error:
            error.args = (_with_axis(function.__name__, settings, str(error)),)
            raise

    shown = signature(function)
    *own, rest = shown.parameters.values()
    kinds = {group: f"str | Path | {also} | None" for group, also in ALSO.items()}
    kinds["observers"] = "Sequence[str | Callable[[], Observer]] | None"
    chosen = [(group, None, kinds.get(group, "str | Path | None")) for group in GROUPS]
    typed = [(each.name.replace(".", "__"), each.default, kinds.get(each.name, each.type)) for each in declared()]
    keys = {
        name: Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in (*chosen, *typed)
    }
    # A keyword that a function types for checkers is shown with the schema's default; its None: not given.
    stays = [each.name for each in own if each.kind is not Parameter.KEYWORD_ONLY] + ["out", "observers"]
    first = [each if each.name in stays else keys.get(each.name, each) for each in own]
    more = [each for name, each in keys.items() if name not in shown.parameters]
    told.__signature__ = shown.replace(parameters=[*first, *more, rest])  # type: ignore[attr-defined]
    return cast(Function, told)


def _with_axis(asked: str, settings: Mapping[str, Any], said: str) -> str:
    """Return what is `said` of a setting, with Python's way to give several and to what are flags."""
    for name, value in settings.items():
        lists = "tuple" in next((each.type for each in declared() if each.name == name), "")
        several = is_several(value) and not lists and re.search(rf"\b{name.rpartition('__')[2]}: [\[(]", said)
        if several or (name == "seeds" and said.startswith("seeds: unknown key")):
            key, values = ("seed", value if is_several(value) else range(5)) if name == "seeds" else (name, value)
            axis = f"{{{key!r}: {represented(values)}}}"
            ways = {"simulate": f"sweep({axis})", "tune": "one value"}
            return f"{said.partition(';')[0]}; expected {ways.get(asked, f'{axis} among the axes')}"
    said = re.sub(r"--(\w+) (\w+) beside -m$", r"sweep(..., \1=\2)", said)
    return re.sub("--(against NAME,NAME|each) beside .*$", "sweep(...).table, or its paired(against=NAME)", said)


def point_of(settings: Mapping[str, Any]) -> dict[str, Given]:
    """Return settings by their dotted keys."""
    keys = map(_key, settings)
    return {key: _value(key, value) for key, value in zip(keys, settings.values(), strict=True)}


def axes_of(axes: Mapping[str, Iterable[Any]], settings: Mapping[str, Any]) -> dict[str, list[Given]]:
    """Return the values of each key, one of each of `settings`, several of `axes`."""
    values = {key: [value] for key, value in point_of(settings).items()}
    for name, wanted in axes.items():
        if not is_several(wanted):
            raise SpecsimError(f"sweep: {name}={wanted!r}: expected a list of values")
        key = _key(name)
        if key in values:
            raise SpecsimError(f"{name}: given twice; expected it among the axes or the settings")
        values[key] = [_value(key, value) for value in wanted]
    return values


def is_several(value: Any) -> bool:
    """Return whether a value holds several, in order; an array without a dimension holds none."""
    unordered = isinstance(value, str | bytes | Mapping | set | frozenset)
    return isinstance(value, Iterable) and not unordered and getattr(value, "ndim", 1) > 0


def _key(name: object) -> str:
    if not isinstance(name, str):
        raise SpecsimError(f"sweep: {shown(name)}: expected a key, as 'rps'")
    key = name.replace("__", ".")
    check_key(key)
    return key


def _value(key: str, value: Any) -> Given:
    """Return the text that names a group's file, and any other setting as the value that it is."""
    if key not in (*GROUPS, *TEXTS):
        return python_value(key, value)
    if value is None and key in TEXTS:
        return "null"
    if (
        key == "acceptance"
        and not isinstance(value, str | Path)
        and (rates_typed(key, text := _text_of(value)) is not None)
    ):
        return text
    if not isinstance(value, str | Path):
        raise SpecsimError(f"{key}: {represented(value)}; expected a name or a path")
    return str(value)


def _text_of(value: Any) -> str:
    """Return a number, or a list or array of numbers, as a command line has it."""
    listed = np.asarray(value).tolist() if is_several(value) or isinstance(value, np.generic) else value
    return json.dumps(listed, default=str)
