"""Checksums of what makes a run's numbers: this package's code, and a plug-in's."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType


@cache
def package_sha256() -> str:
    """Return the checksum of all of specsim's own code; configuration and traces have their own."""
    return _sha256_of(Path(__file__).parent.rglob("*.py"), Path(__file__).parent)


def plugins_sha256(modules: Sequence[ModuleType]) -> dict[str, str]:
    """Return a checksum by name of each plug-in: its code, and that of the modules it uses from its own folder.

    A package counts whole. A module without a file of code (built in, compiled) has none.
    """
    return {module.__name__: _sha256_of(_files(module), None) for module in modules}


def _files(module: ModuleType) -> set[Path]:
    """Return the files of a module and of what it imports, directly or not, from beside it."""
    origin = _file_of(module)
    if origin is None:
        return set()
    folder, found, todo = origin.parent, set[Path](), [module]
    while todo:
        file = _file_of(each := todo.pop())
        if file is None or file in found or not file.is_relative_to(folder):
            continue
        found |= set(file.parent.rglob("*.py")) if file.name == "__init__.py" else {file}
        todo += _used(each)
    return found


def _used(module: ModuleType) -> list[ModuleType]:
    """Return the modules that a module's names are, or come from."""
    values = list(vars(module).values())
    named = {getattr(value, "__module__", None) for value in values}
    return [value for value in values if isinstance(value, ModuleType)] + [
        sys.modules[name] for name in named if isinstance(name, str) and name in sys.modules
    ]


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) and file.endswith(".py") else None


def _sha256_of(files: Iterable[Path], root: Path | None) -> str:
    digest = sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(root) if root else file.name).encode())
        digest.update(sha256(file.read_bytes()).digest())
    return digest.hexdigest()
