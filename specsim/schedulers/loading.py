"""From a YAML to the scheduler: `_target_` and constructor arguments, each checked against the signature."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint
from math import isfinite
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from specsim.errors import SpecsimError, first_line, nearest
from specsim.replica.protocols import Clairvoyant, Scheduler
from specsim.schedulers.installed import installed

OWN_PACKAGE = "specsim.schedulers"
PLUGIN_MARK = "__specsim_plugin__"
EXTRA_KEYS = {"description", "clairvoyant", "suggests", "family"}
"""Keys of a scheduler's file that its class never takes."""


def scheduler_factory(mapping: Mapping[str, Any], source: str, plugins: Sequence[str] = ()) -> Callable[[], Scheduler]:
    """Return a function that makes a fresh scheduler; one is made at once, so that mistakes show before a run.

    `_target_` may name something below `specsim.schedulers`, an entry point of the group of that name, or
    something in a module of `plugins` (a dotted name, or the path of a .py file); nothing else is ever imported.
    A key at the top that the class does not take is shared: parts below take it, with the same value.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    allowed = {OWN_PACKAGE, *(_plugin(name).__name__ for name in plugins)}
    arguments = {key: value for key, value in mapping.items() if key not in EXTRA_KEYS}

    def make() -> Scheduler:
        scheduler: Scheduler = _build(_without_shared(arguments, source, allowed), source, allowed)
        if not callable(getattr(scheduler, "step", None)):
            raise SpecsimError(f"{source}: _target_: {mapping.get('_target_')!r} has no step(view) method")
        if isinstance(scheduler, Clairvoyant) != (mapping.get("clairvoyant", False) is True):
            raise SpecsimError(f"{source}: clairvoyant: expected true exactly where the scheduler has a foresee method")
        return scheduler

    make()
    return make


def defaults_of(entry: EntryPoint) -> dict[str, Any]:
    """Return what a YAML of an entry point would hold: its target and its parameters' defaults, '???' where none."""
    try:
        target = entry.load()
    except (Exception, SystemExit) as error:
        raise SpecsimError(f"scheduler={entry.name}: {entry.value} cannot be loaded: {first_line(error)}") from None
    given = {
        name: "???" if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(target).parameters.items()
    }
    return {"_target_": f"{entry.module}.{entry.attr}", **given}


def unused_plugins(mapping: Mapping[str, Any], plugins: Sequence[str]) -> list[str]:
    """Return the loaded `plugins` of which no `_target_` of a scheduler names anything, nor a plugin that is named."""
    modules = {name: Path(name).stem if name.endswith(".py") else name for name in plugins}
    named = {module for module in modules.values() if any(_below(each, {module}) for each in _target_names(mapping))}
    brought = {
        getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
        for module in named
        for value in vars(sys.modules[module]).values()
    }
    return [name for name, module in modules.items() if module not in named | brought]


def plugin_modules(mapping: Mapping[str, Any], plugins: Sequence[str]) -> list[ModuleType]:
    """Return the loaded modules outside specsim that a scheduler rests on: `plugins`, and what a `_target_` names."""
    names = [Path(name).stem if name.endswith(".py") else name for name in plugins]
    names += [target.rpartition(".")[0] for target in _target_names(mapping)]
    return [sys.modules[name] for name in dict.fromkeys(names) if not _below(name, {OWN_PACKAGE})]


def _target_names(mapping: Mapping[str, Any]) -> Iterator[str]:
    for key, value in mapping.items():
        if key == "_target_":
            yield value
        elif isinstance(value, Mapping):
            yield from _target_names(value)


def _plugin(name: str) -> ModuleType:
    """Import a module by dotted name or path; a file takes the place of another plugin, never of any other module."""
    try:
        return _module_of_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except SpecsimError:
        raise
    except (Exception, SystemExit) as error:
        raise SpecsimError(f"plugins: {name!r} cannot be imported: {first_line(error)}") from None


class _Source(SourceFileLoader):
    """Compiles a file each time: bytecode of the same second and size may be that of an older text."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _module_of_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    name = path.stem
    if name in sys.modules and not hasattr(sys.modules[name], PLUGIN_MARK):
        raise SpecsimError(f"plugins: {path.name!r} has the name of a module that is loaded; expected another name")
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError("no such file")
    module = importlib.util.module_from_spec(spec)
    setattr(module, PLUGIN_MARK, True)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _build(mapping: Mapping[str, Any], where: str, allowed: set[str]) -> Any:
    target = _target(mapping, where, allowed)
    given = {key: value for key, value in mapping.items() if key not in ("_target_", "_partial_")}
    arguments = {
        key: _build(value, f"{where}: {key}", allowed) if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in given.items()
    }
    as_function = mapping.get("_partial_", False)
    if not isinstance(as_function, bool):
        raise SpecsimError(f"{where}: _partial_: {as_function!r} is not true or false")
    _check(target, arguments, where, complete=not as_function)
    if as_function:
        return partial(target, **arguments) if arguments else target
    try:
        return target(**arguments)
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise SpecsimError(f"{where}: {kind}{first_line(error)}") from None


def _target(mapping: Mapping[str, Any], where: str, allowed: set[str]) -> Any:
    name = mapping.get("_target_")
    if not isinstance(name, str):
        raise SpecsimError(f"{where}: _target_: missing, expected the dotted name of a class")
    return _resolve(name, where, allowed)


def _without_shared(mapping: Mapping[str, Any], source: str, allowed: set[str]) -> dict[str, Any]:
    """Return the mapping without the keys that its class does not take and that a part below takes under that name.

    Raises
    ------
    SpecsimError
        When a part has another value there: setting the key at the top would change nothing.
    """
    taken = inspect.signature(_target(mapping, source, allowed)).parameters
    shared = {key: dict(_places(mapping, key)) for key in mapping if key not in taken and not key.startswith("_")}
    known = [*taken, *(key for key, places in shared.items() if places)]
    for key, places in shared.items():
        if not places:
            raise SpecsimError(f"{source}: unknown key {key!r}{nearest(key, known)}")
        for path, other in places.items():
            if other != mapping[key]:
                follow = "${" + "." * path.count(".") + f".{key}}}"
                said = f"{key}: {mapping[key]!r}, but {path} is {other!r}"
                raise SpecsimError(f"{source}: {said}; expected {path}: {follow}")
    return {key: value for key, value in mapping.items() if key not in shared}


def _places(mapping: Mapping[str, Any], key: str, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every `key` of the parts below a mapping."""
    for name, part in mapping.items():
        if name != key and isinstance(part, Mapping) and "_target_" in part:
            if key in part:
                yield f"{above}{name}.{key}", part[key]
            yield from _places(part, key, f"{above}{name}.")


def _below(module_name: str, allowed: set[str]) -> bool:
    return any(module_name == each or module_name.startswith(f"{each}.") for each in allowed)


def _resolve(name: str, where: str, allowed: set[str]) -> Any:
    module_name, _, attribute = name.rpartition(".")
    if (
        module_name == __name__
        or attribute.startswith("_")
        or not (_below(module_name, allowed) or _below(module_name, {e.module for e in installed().values()}))
    ):
        raise SpecsimError(
            f"{where}: _target_: {name!r} is not allowed; expected {OWN_PACKAGE}.*, an installed entry point "
            "or a module named in plugins="
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        raise SpecsimError(f"{where}: _target_: there is no module {module_name!r}") from None
    except (Exception, SystemExit) as error:
        raise SpecsimError(f"{where}: _target_: {module_name} cannot be imported: {first_line(error)}") from None
    names = [
        each
        for each, value in vars(module).items()
        if getattr(value, "__module__", None) == module_name and not each.startswith("_") and callable(value)
    ]
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
    hints = parameter_types(target)
    for key, value in arguments.items():
        _check_type(hints.get(key), value, f"{where}: {key}")


def parameter_types(target: Any) -> dict[str, Any]:
    """Return the annotations of a class's or function's parameters; inherited fields as their own modules read them."""
    if not inspect.isclass(target):
        return typing.get_type_hints(target)
    known: dict[str, Any] = {}
    for base in reversed(target.__mro__):
        known |= vars(sys.modules[base.__module__])
    return typing.get_type_hints(target.__init__, known)


def _check_type(hint: Any, value: Any, where: str) -> None:
    """Refuse a value of another kind than the annotation names; nothing is ever coerced."""
    if typing.get_origin(hint) is types.UnionType:
        if value is None and type(None) in typing.get_args(hint):
            return
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    _check_kind(hint, value, where)


def _check_kind(hint: Any, value: Any, where: str) -> None:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise SpecsimError(f"{where}: {value!r} is unknown{nearest(str(value), map(str, choices))}")
    elif origin is Callable:
        _check_callable(typing.get_args(hint)[0], value, where)
    elif getattr(hint, "_is_protocol", False):
        wanted = [name for name in vars(hint) if name == "__call__" or not name.startswith("_")]
        if not all(hasattr(value, name) for name in wanted):
            raise SpecsimError(f"{where}: {value!r} is no {hint.__name__}; expected a _target_ and its arguments")
    elif hint in _KINDS:
        kinds, expected = _KINDS[hint]
        if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
            raise SpecsimError(f"{where}: {value!r} is not {expected}")
        if isinstance(value, float) and not isfinite(value):
            raise SpecsimError(f"{where}: {value!r} is not {expected}")


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a name"),
    bool: ((bool,), "true or false"),
}


def _check_callable(arguments: Any, value: Any, where: str) -> None:
    if not callable(value):
        raise SpecsimError(f"{where}: {value!r} is no function; expected a _target_ and its arguments")
    try:
        inspect.signature(value).bind(*arguments)
    except TypeError:
        raise SpecsimError(
            f"{where}: _target_ names a function that does not take {len(arguments)} arguments"
        ) from None
