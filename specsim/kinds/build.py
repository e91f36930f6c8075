"""From a YAML to an object: `_target_` and constructor arguments, each checked against the signature."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

from specsim.errors import SpecsimError, first_line, nearest, passes_through, reason
from specsim.files.checked_mapping import expanded
from specsim.files.plain import copied
from specsim.kinds.installed import installed
from specsim.kinds.plugins import below
from specsim.kinds.signature import check_arguments, parameter_types, parameters_of


@dataclass(frozen=True, slots=True)
class Scope:
    """What a `_target_` may name; nothing else is ever imported.

    Attributes
    ----------
    group : of settings, whose installed entry points are allowed.
    own : a package of specsim's whose modules are allowed, but for those in `closed`.
    plugins : modules that the user named.
    folder : what an argument annotated as a `Path` is relative to.
    """

    group: str
    own: str | None = None
    closed: frozenset[str] = frozenset()
    plugins: Mapping[str, ModuleType] = field(default_factory=dict)
    folder: Path = Path()


def build(mapping: Mapping[str, Any], where: str, scope: Scope, above: Mapping[str, Any] | None = None) -> Any:
    """Return what a mapping's `_target_` makes of the other keys; parts below with a `_target_` are built first.

    A key is handed down: a part below that has a parameter of that name and does not give it takes it. A function that
    is handed on (`_partial_`) takes none.

    Parameters
    ----------
    above : keys that the mappings above hand down.

    Raises
    ------
    SpecsimError
        One line that begins with `where` and names the key.
    """
    target, as_function = target_of(mapping, where, scope), _is_function(mapping, where)
    given = {key: value for key, value in mapping.items() if key not in ("_target_", "_partial_")}
    shared = {**(above or {}), **given}
    arguments = {
        key: build(value, f"{where}: {key}", scope, {each: shared[each] for each in shared if each != key})
        if _is_part(value)
        else copied(value)
        for key, value in (given if as_function else _taken(target, given, shared, where, scope)).items()
    }
    check_arguments(target, arguments, where, complete=not as_function)
    arguments = _placed(target, arguments, where, scope.folder)
    if as_function:
        return partial(target, **arguments) if arguments else target
    try:
        return target(**arguments)
    except BaseException as error:
        if passes_through(error) and not isinstance(error, SpecsimError):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise SpecsimError(f"{where}: {kind}{first_line(error)}") from None


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and "_target_" in value


def _is_function(mapping: Mapping[str, Any], where: str) -> bool:
    """Return whether a mapping stands for its target itself, which others call."""
    said = mapping.get("_partial_", False)
    if not isinstance(said, bool):
        raise SpecsimError(f"{where}: _partial_: {said!r} is not true or false")
    return said


def _taken(
    target: Any, given: Mapping[str, Any], shared: Mapping[str, Any], where: str, scope: Scope
) -> dict[str, Any]:
    """Return the keys that a class takes, given or handed down; those that only its parts take are left out.

    Raises
    ------
    SpecsimError
        For a key that neither the class nor a part takes.
    """
    parameters = parameters_of(target)
    for key, value in given.items():
        if key in parameters:
            continue
        values = dict(_takers(given, key, value, where, scope))
        if not values:
            raise SpecsimError(f"{where}: unknown key {key!r}{nearest(key, {*parameters, *given} - {key})}")
        if value not in values.values():
            said = " and ".join(f"{path} is {other!r}" for path, other in values.items())
            raise SpecsimError(f"{where}: {key}: {value!r} reaches no part: {said}; expected one value")
    return {key: shared[key] for key in parameters if key in shared}


def _takers(mapping: Mapping[str, Any], key: str, value: Any, where: str, scope: Scope) -> Iterator[tuple[str, Any]]:
    """Yield the dotted place of each `key` that a part below gives itself or takes from above, and its value there."""
    for name, part in mapping.items():
        if name == key or not _is_part(part):
            continue
        at = f"{where}: {name}"
        if key in part or (not _is_function(part, at) and key in parameters_of(target_of(part, at, scope))):
            yield f"{name}.{key}", part.get(key, value)
        for path, own in _takers(part, key, part.get(key, value), at, scope):
            yield f"{name}.{path}", own


def target_of(mapping: Mapping[str, Any], where: str, scope: Scope) -> Any:
    """Return the class or function that a mapping's `_target_` names.

    Raises
    ------
    SpecsimError
        When it names nothing, or what is not in the scope.
    """
    name = mapping.get("_target_")
    if not isinstance(name, str):
        raise SpecsimError(f"{where}: _target_: missing, expected the dotted name of a class")
    module_name, _, attribute = name.rpartition(".")
    module = _module(name, module_name, attribute, where, scope)
    if not _is_of(module, attribute):
        names = [each for each in vars(module) if _is_of(module, each)]
        raise SpecsimError(f"{where}: _target_: {module_name} has no {attribute!r}{nearest(attribute, names)}")
    return getattr(module, attribute)


def _is_of(module: ModuleType, name: str) -> bool:
    """Return whether a module defines a public class or function of this name."""
    value = vars(module).get(name)
    return callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def defaults_of(entry: EntryPoint, group: str) -> dict[str, Any]:
    """Return what a YAML of an entry point would hold: its target and its parameters' defaults, '???' where none."""
    try:
        target = entry.load()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise SpecsimError(f"{group}={entry.name}: {entry.value} cannot be loaded: {reason(error)}") from None
    given = {
        name: "???" if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(target).parameters.items()
    }
    return {"_target_": f"{entry.module}.{entry.attr}", **given}


def _module(name: str, module_name: str, attribute: str, where: str, scope: Scope) -> ModuleType:
    packages = {entry.module for entry in installed(scope.group).values()} | set(scope.plugins)
    ours = scope.own is not None and below(module_name, {scope.own}) and module_name not in scope.closed
    if attribute.startswith("_") or not (ours or below(module_name, packages)):
        expected = "" if scope.own is None else f"{scope.own}.*, "
        raise SpecsimError(
            f"{where}: _target_: {name!r} is not allowed; expected {expected}an installed entry point "
            "or a module named in plugins="
        )
    if module_name in scope.plugins:
        return scope.plugins[module_name]
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError:
        raise SpecsimError(f"{where}: _target_: there is no module {module_name!r}") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise SpecsimError(f"{where}: _target_: {module_name} cannot be imported: {reason(error)}") from None


def _placed(target: Any, arguments: Mapping[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Return the arguments with each text that stands for a `Path` as the file that it names."""
    paths = {name for name, hint in parameter_types(target).items() if hint in (Path, Path | None)}
    return {
        key: folder / expanded(value, f"{where}: {key}: ") if key in paths and isinstance(value, str) else value
        for key, value in arguments.items()
    }
