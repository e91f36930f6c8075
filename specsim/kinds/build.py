"""From a YAML to an object: `_target_` and constructor arguments, each checked against the signature."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
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
from specsim.kinds.signature import check_arguments, parameter_types


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


def build(mapping: Mapping[str, Any], where: str, scope: Scope) -> Any:
    """Return what a mapping's `_target_` makes of the other keys; parts below with a `_target_` are built first.

    Raises
    ------
    SpecsimError
        One line that begins with `where` and names the key.
    """
    target = target_of(mapping, where, scope)
    given = {key: value for key, value in mapping.items() if key not in ("_target_", "_partial_")}
    arguments = {
        key: build(value, f"{where}: {key}", scope)
        if isinstance(value, Mapping) and "_target_" in value
        else copied(value)
        for key, value in given.items()
    }
    as_function = mapping.get("_partial_", False)
    if not isinstance(as_function, bool):
        raise SpecsimError(f"{where}: _partial_: {as_function!r} is not true or false")
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
