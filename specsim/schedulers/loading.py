"""From a YAML to the scheduler: `_target_` and constructor arguments, each checked against the signature."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from specsim.errors import SpecsimError, nearest
from specsim.protocols import Scheduler

OWN_PACKAGE = "specsim.schedulers"
GROUP = "specsim.schedulers"
EXTRA_KEYS = {"description", "clairvoyant"}


def scheduler_factory(mapping: Mapping[str, Any], source: str, plugins: Sequence[str] = ()) -> Callable[[], Scheduler]:
    """Return a function that makes a fresh scheduler; one is made at once, so that mistakes show before a run.

    `_target_` may name something below `specsim.schedulers`, an entry point of the group of that name, or
    something in a module of `plugins` (a dotted name, or the path of a .py file); nothing else is ever imported.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    modules = [*(_plugin(name) for name in plugins)]
    allowed = {
        OWN_PACKAGE,
        *(module.__name__ for module in modules),
        *(e.module for e in installed().values()),
    }
    arguments = {key: value for key, value in mapping.items() if key not in EXTRA_KEYS}

    def make() -> Scheduler:
        scheduler: Scheduler = _build(arguments, source, allowed)
        if not callable(getattr(scheduler, "step", None)):
            raise SpecsimError(f"{source}: _target_: {mapping.get('_target_')!r} has no step(view) method")
        return scheduler

    make()
    return make


def installed() -> dict[str, EntryPoint]:
    """Return the schedulers that other packages bring, by the names of their entry points."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def defaults_of(entry: EntryPoint) -> dict[str, Any]:
    """Return what a YAML of an entry point would hold: its target and its parameters' defaults, '???' where none."""
    target = entry.load()
    given = {
        name: "???" if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(target).parameters.items()
    }
    return {"_target_": f"{entry.module}.{entry.attr}", **given}


def _plugin(name: str) -> ModuleType:
    path = Path(name)
    try:
        if path.suffix != ".py":
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecsimError(f"plugins: {name!r} cannot be imported: {reason}") from None
    return module


def _build(mapping: Mapping[str, Any], where: str, allowed: set[str]) -> Any:
    target_name = mapping.get("_target_")
    if not isinstance(target_name, str):
        raise SpecsimError(f"{where}: _target_: missing, expected the dotted name of a class")
    target = _resolve(target_name, where, allowed)
    given = {key: value for key, value in mapping.items() if key not in ("_target_", "_partial_")}
    arguments = {
        key: _build(value, f"{where}: {key}", allowed) if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in given.items()
    }
    as_function = bool(mapping.get("_partial_", False))
    _check(target, arguments, where, complete=not as_function)
    if as_function:
        return partial(target, **arguments) if arguments else target
    try:
        return target(**arguments)
    except (ValueError, TypeError) as error:
        raise SpecsimError(f"{where}: {error}") from None


def _resolve(name: str, where: str, allowed: set[str]) -> Any:
    module_name, _, attribute = name.rpartition(".")
    if not any(module_name == each or module_name.startswith(f"{each}.") for each in allowed):
        raise SpecsimError(
            f"{where}: _target_: {name!r} is not allowed; expected {OWN_PACKAGE}.*, an installed entry point "
            "or a module named in plugins="
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        raise SpecsimError(f"{where}: _target_: there is no module {module_name!r}") from None
    names = [each for each, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
    if attribute not in names:
        raise SpecsimError(f"{where}: _target_: {module_name} has no {attribute!r}{nearest(attribute, names)}")
    return getattr(module, attribute)


def _check(target: Any, arguments: Mapping[str, Any], where: str, *, complete: bool) -> None:
    parameters = inspect.signature(target).parameters
    for key in arguments:
        if key not in parameters:
            raise SpecsimError(f"{where}: unknown key {key!r}{nearest(key, parameters)}")
    missing = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
    for name in missing if complete else ():
        if name not in arguments:
            raise SpecsimError(f"{where}: missing key {name!r}")
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    for key, value in arguments.items():
        _check_type(hints.get(key), value, f"{where}: {key}")


def _check_type(hint: Any, value: Any, where: str) -> None:
    """Refuse a plain value of another kind than the annotation names; nothing is ever coerced."""
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise SpecsimError(f"{where}: {value!r} is unknown{nearest(str(value), map(str, choices))}")
        return
    kinds: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}
    if hint in kinds and (not isinstance(value, kinds[hint]) or (isinstance(value, bool) and hint is not bool)):
        names = {int: "a whole number", float: "a number", str: "a name", bool: "true or false"}
        raise SpecsimError(f"{where}: {value!r} is not {names[hint]}")
