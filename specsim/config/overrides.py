"""Settings below a composed tree: each key is there already, each value of the kind that it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.config.python_value import PythonValue
from specsim.config.values import fitting, whole
from specsim.errors import SpecsimError, nearest

RIVALS = {"tpot_s": "tpot_ratio", "tpot_ratio": "tpot_s"}
"""Keys of a promise of which one is given: setting one takes the file's other away."""

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
        new = text.value if isinstance(text, PythonValue) else fitting(setting, text, old)
        if new == {} and (isinstance(old, Mapping) or not there):
            raise SpecsimError(f"{setting}: changes nothing: a mapping is merged into what is there")
        former = _shapes(key, old) if name != SHAPE else {key: old}
        holder[name] = _merged(old, new)
        said.update(_leaves(key, new))
        shapes = former | shapes
    for key in said:
        _give_way(tree, key, said)
    for key in said & shapes.keys():
        _drop_shape(tree, key, shapes[key], said)
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
        known = list(map(str, node)) if isinstance(node, Mapping) else []
        may_be_new = above[0] == "slo" and not (above == ["slo", "classes"] and classes)
        if each not in known and not (may_be_new and isinstance(node, dict)):
            higher = ".".join(_handed_down(tree, key.split(".")))
            hint = f"; expected {higher}" if higher else nearest(each, known)
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
        return whole(new, old)
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
    node: Any = tree
    *above, _ = key.split(".")
    for each in above:
        node = node[int(each) if isinstance(node, list) else each]
    if node[SHAPE] != former:
        for name in [each for each in node if ".".join((*above, each)) not in said]:
            del node[name]


def _give_way(tree: Mapping[str, Any], key: str, said: set[str]) -> None:
    *above, name = key.split(".")
    if above[:1] != ["slo"] or name not in RIVALS or ".".join((*above, RIVALS[name])) in said:
        return
    node: Any = tree
    for each in above:
        node = node.get(each) if isinstance(node, Mapping) else None
    if isinstance(node, dict) and node.get(name) is not None:
        node.pop(RIVALS[name], None)


def _forget_defaults(mix: dict[str, Any], said: set[str]) -> None:
    """Take away what the file, not the user, says for all classes where each class by now says its own."""
    classes = mix["classes"]
    bodies = [body for body in classes.values() if isinstance(body, Mapping)] if isinstance(classes, Mapping) else []
    for name in DEFAULTS:
        own = all(any(body.get(each) is not None for each in (name, RIVALS.get(name, name))) for body in bodies)
        if bodies and own and f"slo.{name}" not in said and mix.get("classes_from") != "trace":
            mix.pop(name, None)
