"""The kinds of one group of settings: those that are built in by name, anybody's by `_target_`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from specsim.errors import SpecsimError, passes_through, represented
from specsim.files.checked_mapping import CheckedMapping
from specsim.kinds.build import Scope, build
from specsim.kinds.signature import lacks

T = TypeVar("T")
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
        """Return the object that a file describes, by `kind` or by `_target_`.

        Raises
        ------
        SpecsimError
            One line naming the source and the key.
        """
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
        from specsim.replica.blame import complaint, own_line

        where = own_line(error.__traceback__, getattr(method, "__self__", method))
        raise SpecsimError(f"{source}: {name}: {complaint(error)}{where}") from error
    if not isinstance(found, wanted):
        raise SpecsimError(f"{source}: {name} returned {represented(found)}; expected a {wanted.__name__}")
    return found
