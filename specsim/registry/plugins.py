"""Plug-in modules and installed entry points."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from specsim.errors import SpecsimError, passes_through, reason

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


PLUGIN_MARK = "__specsim_plugin__"
OURS = "specsim"


def load_plugins(names: Sequence[str]) -> dict[str, ModuleType]:
    """Import plug-ins by dotted name or path and return them by module name.

    Raises
    ------
    SpecsimError
        One line for a plug-in that cannot be imported.
    """
    modules = [_plugin(name) for name in names]
    return {module.__name__: module for module in modules}


def unused_plugins(mapping: Mapping[str, Any], plugins: Sequence[str]) -> list[str]:
    """Return the loaded `plugins` of which no `_target_` in a mapping names anything, nor a plugin that is named."""
    modules = {name: Path(name).stem if name.endswith(".py") else name for name in plugins}
    named = {module for module in modules.values() if any(below(each, {module}) for each in _target_names(mapping))}
    brought = {
        getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
        for module in named
        for value in vars(sys.modules[module]).values()
    }
    return [name for name, module in modules.items() if module not in named | brought]


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
        raise SpecsimError(f"plugins: {name!r} cannot be imported: {reason(error)}") from None


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
        there = getattr(sys.modules[name], "__file__", None)
        same = there is not None and Path(there).resolve() == path
        wanted = f"it by its module's name, plugins={name}" if same else "another name"
        raise SpecsimError(f"plugins: {path.name!r} has the name of a module that is loaded; expected {wanted}")
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
