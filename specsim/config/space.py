"""The values that a search tries of a scheduler's keys, as its file declares them under ``tune``.

A list holds the values to try, in order. A mapping holds a list for each of its own keys: a table by batch size is
``{1-8: [1, 3, 5], 9-512: [0, 1]}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from specsim.config.groups import file_of
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import shown
from specsim.files.yaml_file import read_yaml

SPACE = "tune"
"""The key of a scheduler's file; no run reads it."""
Path = tuple[str, ...]
Combination = tuple[int, ...]
"""The place of a value in each list."""


@dataclass(frozen=True, slots=True)
class Space:
    """Lists of values by the path of a key: its dotted name below the scheduler, then keys of a mapping that it takes.

    `scheduler` is its name or path.
    """

    scheduler: str
    values: Mapping[Path, Sequence[Any]]

    def __len__(self) -> int:
        """Return the number of combinations."""
        return prod(map(len, self.values.values()))

    def choices(self) -> Iterator[Combination]:
        """Yield every combination, the last list fastest."""
        yield from product(*(range(len(each)) for each in self.values.values()))

    def settings(self, choice: Combination) -> dict[str, Any]:
        """Return the value of each key of a choice, by its dotted name below the scheduler."""
        found: dict[str, Any] = {}
        for ((key, *below), values), place in zip(self.values.items(), choice, strict=True):
            holder, name = found, key
            for each in below:
                holder, name = holder.setdefault(name, {}), each
            holder[name] = values[place]
        return found


def space_of(scheduler: str, given: Mapping[str, Sequence[Any]]) -> Space:
    """Return what a search tries of a scheduler: what its file declares, and the `given` values in its place.

    Raises
    ------
    SpecsimError
        One line for a file that declares nothing, or no lists of different values, where nothing is given.
    """
    file = file_of("scheduler", scheduler)
    declared = {} if file is None else read_yaml(file).get(SPACE) or {}
    source = f"scheduler={scheduler}: {SPACE}"
    if not isinstance(declared, Mapping):
        raise SpecsimError(f"{source}: {shown(declared)}: expected lists of values by key")
    if not declared and not given:
        expected = "tune: {num_speculative_tokens: [1, 3, 5]} there, or several values such as scheduler.KEY=1,3,5"
        raise SpecsimError(f"scheduler={scheduler}: its file declares no values to try; expected {expected}")
    return Space(scheduler, dict(_lists((), {**declared, **given}, source)))


def _lists(path: Path, node: Mapping[Any, Any], source: str) -> Iterator[tuple[Path, Sequence[Any]]]:
    for name, value in node.items():
        below = (*path, str(name))
        if isinstance(value, Mapping) and value:
            yield from _lists(below, value, source)
        elif isinstance(value, list) and value and all(each not in value[:place] for place, each in enumerate(value)):
            yield below, value
        else:
            said = f"{source}: {'.'.join(below)}: {shown(value)}"
            raise SpecsimError(f"{said}: expected a list of different values, or a mapping of such lists")
