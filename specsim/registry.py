"""Plug-in modules, installed entry points, kinds of a group, and objects built from a `_target_`.

A mistake is a SpecsimError of one line that begins with `where` or the source, and names the key.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from itertools import combinations
from math import isfinite
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Generic, TypeVar

from specsim.errors import SpecsimError, first_line, nearest, passes_through, represented, with_article
from specsim.files.checked_mapping import CheckedMapping, copied, expanded

ENTRY_POINTS = {
    "scheduler": "specsim.schedulers",
    "trace": "specsim.traces",
    "acceptance": "specsim.acceptance",
    "drafter": "specsim.drafters",
    "router": "specsim.routers",
}
"""Groups of settings that are open, and the group of entry points of each."""


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return what other packages bring for a group of settings, by name; nothing where the group is not open."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS[group])} if group in ENTRY_POINTS else {}


WORD = re.compile(r"\w+")
OURS = "specsim"
_LOADED: dict[str, ModuleType] = {}
"""Plug-ins of files, and what they imported that lies beside them: each run loads both anew, as they hold its state."""


def load_plugins(names: Sequence[str]) -> dict[str, ModuleType]:
    """Import plug-ins by dotted name or path and return them by module name; files, and what lies beside them, anew.

    Raises
    ------
    SpecsimError
        One line for a plug-in that cannot be imported, or two of one name.
    """
    old = {name: sys.modules.pop(name) for name, each in _LOADED.items() if sys.modules.get(name) is each}
    for (package, _, name), each in ((key.rpartition("."), each) for key, each in old.items()):
        if package in sys.modules and vars(sys.modules[package]).get(name) is each:
            delattr(sys.modules[package], name)
    try:
        return _loaded(names)
    finally:
        sys.modules.update({name: each for name, each in old.items() if name not in sys.modules})  # Of some objects.


def _loaded(names: Sequence[str]) -> dict[str, ModuleType]:
    named = {Path(name).expanduser().resolve() if name.endswith(".py") else name: name for name in names}
    for one, other in combinations([each for each in named if isinstance(each, Path)], 2):
        if one.stem == other.stem:
            both = f"{named[one]!r} and {named[other]!r}"
            raise SpecsimError(f"plugins: {both} are both {one.stem!r} to Python; expected two file names")
    return {module.__name__: module for module in map(_plugin, named.values())}


def plugins_used(mapping: Mapping[str, Any], plugins: Sequence[str]) -> list[str]:
    """Return the `plugins` that a run rests on: those in which a `_target_` names something, and what they import.

    No plug-in is loaded: an import is a line of a text that has the word. A plug-in whose text is not found counts,
    too: to load it tells why.
    """
    modules = {name: Path(name).stem if name.endswith(".py") else name for name in plugins}
    texts = {name: _text_of(name) for name in modules}
    targets = [each for each in _target_names(mapping) if isinstance(each, str)]
    used = [name for name in modules if texts[name] is None or any(below(each, {modules[name]}) for each in targets)]
    for each in used:
        words = {word for line in (texts[each] or "").splitlines() if "import" in line for word in WORD.findall(line)}
        used += [name for name in modules if name not in used and modules[name].rpartition(".")[2] in words]
    return [name for name in modules if name in used]


def _text_of(plugin: str) -> str | None:
    try:
        found = plugin if plugin.endswith(".py") else getattr(importlib.util.find_spec(plugin), "origin", None)
        return None if found is None else Path(found).expanduser().read_text(errors="replace")
    except BaseException as error:
        if passes_through(error):
            raise
        return None


def plugin_modules(mapping: Mapping[str, Any], plugins: Mapping[str, ModuleType]) -> list[ModuleType]:
    """Return the loaded modules outside specsim that a run rests on: `plugins`, and what a `_target_` names."""
    named = [target.rpartition(".")[0] for target in _target_names(mapping)]
    others = {
        name: sys.modules[name]
        for name in named
        # What no plug-in has loaded is refused where it is built, as Python's own modules are.
        if name in sys.modules and name not in plugins and not below(name, {OURS})
        if name.partition(".")[0] not in sys.stdlib_module_names
    }
    return [*plugins.values(), *others.values()]


def below(module_name: str, allowed: set[str]) -> bool:
    """Return whether a module is one of `allowed`, or lies in one of these packages."""
    return any(module_name == each or module_name.startswith(f"{each}.") for each in allowed)


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
    except BaseException as error:
        if passes_through(error):
            raise
        raise SpecsimError(f"plugins: {name!r} cannot be imported: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """Return what an error of the user's code says, its kind and the line that raised it."""
    from specsim.core.user_code import complaint, own_place

    place = own_place(error)
    return first_line(error) if isinstance(error, ImportError | OSError) and not place else complaint(error) + place


class _Source(SourceFileLoader):
    """Compiles a file each time: bytecode of the same second and size may be that of an older text."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _module_of_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    name = path.stem
    if name in sys.modules:
        there = getattr(sys.modules[name], "__file__", None)
        same = there is not None and Path(there).resolve() == path
        wanted = f"it by its module's name, plugins={name}" if same else "another name"
        raise SpecsimError(f"plugins: {path.name!r} has the name of a module that is loaded; expected {wanted}")
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError("no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = {*sys.modules} - {name}
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _LOADED.update({each: sys.modules[each] for each in {*sys.modules} - before if _is_beside(each, path.parent)})
    return module


def _is_beside(name: str, folder: Path) -> bool:
    """Return whether a loaded module is a Python file in a folder, or of a package there; specsim's own are not."""
    module, top = sys.modules[name], folder / name.partition(".")[0]
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    place = Path(file).resolve()
    return place.suffix in ("", ".py") and top in (place.with_suffix(""), *place.parents) and not below(name, {OURS})


T = TypeVar("T")
TARGET = "_target_"
"""The key whose value is the dotted name of a class."""
Maker = Callable[[CheckedMapping, Path], T]
"""From the checked keys of a file, and the folder that paths in it are relative to, to an object."""


@dataclass(frozen=True, slots=True)
class Kinds(Generic[T]):
    """The kinds of one group.

    Attributes
    ----------
    group : of settings. built_in : what makes each kind that `kind` may name.
    protocol : what an object of any kind offers. labels : keys beside `_target_` that no class is given.
    page : the documentation of the group.
    """

    group: str
    built_in: Mapping[str, Maker[T]]
    protocol: type
    labels: frozenset[str]
    page: str

    def made(self, node: CheckedMapping, folder: Path, plugins: Mapping[str, ModuleType]) -> T:
        """Return the object that a file describes, by `kind` or by `_target_`."""
        if "_target_" not in node.values:
            return self.built_in[node.choice("kind", self.built_in)](node, folder)
        arguments = {str(key): value for key, value in node.values.items() if key not in self.labels}
        made: T = build(arguments, node.source, Scope(self.group, plugins=plugins, folder=folder))
        missing = lacks(made, self.protocol)
        if missing is not None:
            raise SpecsimError(
                f"{node.source}: _target_: {node.values['_target_']!r} has no {missing}; "
                f"expected all that {self.protocol.__name__} names ({self.page})"
            )
        return made


def asked(source: str, method: Callable[..., Any], wanted: type, *arguments: Any) -> Any:
    """Return what a method of somebody's object answers.

    Raises
    ------
    SpecsimError
        One line that begins with `source`, where it fails or answers with something else than `wanted`.
    """
    name = getattr(method, "__qualname__", repr(method))
    try:
        found = method(*arguments)
    except BaseException as error:
        if passes_through(error):
            raise
        from specsim.core.user_code import complaint, own_line

        where = own_line(error.__traceback__, getattr(method, "__self__", method))
        raise SpecsimError(f"{source}: {name}: {complaint(error)}{where}") from error
    if not isinstance(found, wanted):
        raise SpecsimError(f"{source}: {name} returned {represented(found)}; expected {with_article(wanted.__name__)}")
    return found


def check_arguments(target: Any, arguments: Mapping[str, Any], where: str, *, complete: bool) -> None:
    """Refuse an unknown key, a value of another kind than its annotation and, if `complete`, a missing key."""
    parameters = parameters_of(target)
    for key in arguments:
        if key not in parameters:
            raise SpecsimError(f"{where}: unknown key {key!r}{nearest(key, parameters)}")
    needed = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
    missing = [repr(name) for name in needed if name not in arguments]
    if complete and missing:
        raise SpecsimError(f"{where}: missing key{'s' * (len(missing) > 1)} {', '.join(missing)}")
    hints = parameter_types(target)
    for key, value in arguments.items():
        _check_type(hints.get(key), value, f"{where}: {key}")


@lru_cache(maxsize=256)
def parameters_of(target: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by name."""
    return inspect.signature(target).parameters


def parameter_types(target: Any) -> dict[str, Any]:
    """Return the annotations of a class's or function's parameters; inherited fields as their own modules read them."""
    return dict(_types_of_class(target)) if isinstance(target, type) else typing.get_type_hints(target)


@lru_cache(maxsize=256)
def _types_of_class(target: Any) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for base in reversed(target.__mro__):
        known |= vars(sys.modules[base.__module__])
    return typing.get_type_hints(target.__init__, known)


def lacks(made: object, protocol: type) -> str | None:
    """Return the first public member of a protocol that an object has not, None where it has all."""
    absent = object()
    return next((name for name in _members(protocol) if inspect.getattr_static(made, name, absent) is absent), None)


def _members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if name == "__call__" or not name.startswith("_")]


def _check_type(hint: Any, value: Any, where: str) -> None:
    """Refuse a value of another kind than the annotation names; nothing is ever coerced."""
    if typing.get_origin(hint) is types.UnionType:
        one_of = typing.get_args(hint)
        if isinstance(value, tuple(each for each in one_of if inspect.isclass(each) and each not in _KINDS)):
            return
        hint = next(each for each in one_of if each is not type(None))
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
        lacking = [name for name in _members(hint) if not hasattr(value, name)]
        if lacking:
            told = "expected a _target_ and its arguments"
            if len(lacking) < len(_members(hint)):
                told = f"it lacks {', '.join(lacking)}, which a subclass of {hint.__name__} has or is told to have"
            raise SpecsimError(f"{where}: {value!r} is no {hint.__name__}; {told}")
    elif hint in _KINDS:
        kinds, expected = _KINDS[hint]
        is_one = isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))
        if not is_one or (isinstance(value, float) and not isfinite(value)):
            raise SpecsimError(f"{where}: {value!r} is not {expected}")


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a name"),
    bool: ((bool,), "true or false"),
    Path: ((str, Path), "the name of a file"),
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


@dataclass(frozen=True, slots=True)
class Scope:
    """The modules that a `_target_` may name; nothing else is ever imported.

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
        said = first_line(error) if isinstance(error, ValueError) else _said(error)
        raise SpecsimError(f"{where}: {said}") from error


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
    """Return the keys that a class takes, given or handed down; keys that only its parts take are left out."""
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
    """Return the class or function that a mapping's `_target_` names."""
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
        raise SpecsimError(f"{group}={entry.name}: {entry.value} cannot be loaded: {_said(error)}") from error
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
        raise SpecsimError(f"{where}: _target_: {module_name} cannot be imported: {_said(error)}") from error


def _placed(target: Any, arguments: Mapping[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Return the arguments with each text that stands for a `Path` as the file that it names."""
    paths = {name for name, hint in parameter_types(target).items() if hint in (Path, Path | None)}
    return {
        key: folder / expanded(value, f"{where}: {key}: ") if key in paths and isinstance(value, str) else value
        for key, value in arguments.items()
    }
