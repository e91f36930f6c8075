"""Where a run comes from: machine, versions, files and checksums of code; kept beside metrics, never inside them."""

from __future__ import annotations

import ast
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from specsim.errors import SpecsimError
from specsim.latency.model import Profile
from specsim.metrics.why import ALONE, alone

if TYPE_CHECKING:
    from specsim.runs.prepare import Experiment

PACKAGES = ("specsim", "numpy", "numba", "scipy", "pandas", "pyarrow", "simpy", "hydra-core")


def sources_of(experiment: Experiment) -> dict[str, Any]:
    """Return what `provenance.json` holds of all that makes a run's numbers beside its settings: code and files."""
    source = experiment.source
    of_trace = {name: getattr(source, name) for name in ("name", "origin", "file", "sha256", "licence")}
    return {
        "code_sha256": package_sha256(),
        "plugins": dict(experiment.plugins),
        "trace": {**of_trace, "requests": source.holds},
        "recording_sha256": experiment.recording_sha256,
    }


def provenance_of(
    experiment: Experiment, notes: tuple[str, ...], started: datetime, loop_s: float, iterations: int
) -> dict[str, Any]:
    """Return what `provenance.json` holds of a run that began at `started` and whose event loop took `loop_s`."""
    first, *others = experiment.profiles
    return {
        "started": started.isoformat(timespec="seconds"),
        "loop_wall_s": loop_s,
        "iterations_per_wall_s": iterations / loop_s,
        "host": {
            "machine": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "versions": dict(versions()),
        **sources_of(experiment),
        "profile": _profile_facts(first),
        **({"other_profiles": [_profile_facts(each) for each in others]} if others else {}),
        ALONE: alone(experiment.profiles),
        "objects": {group: dict(said) for group, said in experiment.objects.items()},
        "notes": list(notes),
    }


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of `PACKAGES`."""
    return {name: version(name) for name in PACKAGES}


def _profile_facts(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "hardware": profile.hardware,
        "provenance": [dict(each) for each in profile.provenance],
    }


PACKAGE = Path(__file__).parents[1]

_AT_FIRST: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""The checksum of each loaded module's file when it was first seen: that of the code in memory."""


@cache
def package_sha256() -> str:
    """Return the checksum of all of specsim's own code; configuration and traces have their own."""
    return folder_sha256(PACKAGE)


@cache
def folder_sha256(folder: Path) -> str:
    """Return the checksum of all Python files below a folder."""
    return _sha256_of(folder.rglob("*.py"), folder)


def plugins_sha256(modules: Sequence[ModuleType]) -> dict[str, str | None]:
    """Return a checksum by name of each plug-in: its code, and that of the modules it uses from its own folder.

    A package counts whole. A module whose code no file of Python holds (typed at a prompt or in a notebook, compiled)
    has none: None.

    Raises
    ------
    SpecsimError
        When a file has changed since its module was first seen: the code in memory is another one.
    """
    files = {module: _files(module) for module in modules}
    # A package without a file has no code of its own.
    unknown = {module for module, found in files.items() if not found and not hasattr(module, "__path__")}
    return {each.__name__: None if each in unknown else _sha256_of(found, None) for each, found in files.items()}


def _files(module: ModuleType) -> set[Path]:
    """Return the files of a module and of what it imports, directly or not, from beside it."""
    origin = _file_of(module)
    if origin is None:
        return set()
    folder, found = origin.parent, set[Path]()
    todo: list[tuple[Path | None, ModuleType | None]] = [(origin, module)]
    while todo:
        file, each = todo.pop()
        if file is None or file in found or not file.is_relative_to(folder):
            continue
        if each is not None:
            _check_loaded(each, file)
        found |= {file, *(file.parent.rglob("*.py") if file.name == "__init__.py" else ())}
        for name in _used(each, file):
            loaded = sys.modules.get(name)
            # What a function imports is not loaded before it runs.
            todo.append((_beside(folder, name) if loaded is None else _file_of(loaded), loaded))
    return found


def _beside(folder: Path, name: str) -> Path | None:
    place = folder.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _check_loaded(module: ModuleType, file: Path) -> None:
    now = sha256(file.read_bytes()).hexdigest()
    if _AT_FIRST.setdefault(module, now) != now:
        raise SpecsimError(f"plugins: {str(file)!r} has changed since it was imported; expected a new Python session")


def _used(module: ModuleType | None, file: Path) -> Iterator[str]:
    """Yield the names of the modules that a module's code imports, and that its names come from."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            package = module.__package__ if module is not None else None
            if node.level and not package:
                continue  # Of a package, which counts whole.
            source = resolve_name(name, package) if node.level else name
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
    for value in list(vars(module).values()) if module is not None else ():
        origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(origin, str):
            yield origin


def _file_of(module: ModuleType) -> Path | None:
    """Return the file that holds the code of a module; None where none does, or where code is typed beside it."""
    prompted = module.__name__ == "__main__" and (sys.flags.interactive or hasattr(sys, "ps1"))
    file = None if prompted else getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) and file.endswith(".py") else None


def _sha256_of(files: Iterable[Path], root: Path | None) -> str:
    digest = sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(root) if root else file.name).encode())
        digest.update(sha256(file.read_bytes()).digest())
    return digest.hexdigest()
