"""Where a run's acceptance tape comes from: drawn from curves, or recorded from a pair of models; and which pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specsim.files.checked_mapping import CheckedMapping
from specsim.replica.request import Ints
from specsim.world.curves import KEYS, Acceptance, curves_from_mapping, draw_tape
from specsim.world.recorded import Recording, recorded_tape, recording_from_mapping
from specsim.world.tape import Tape

ANY = "any"


class Pair(NamedTuple):
    """A target and what drafts for it, by name; ``any`` stands for every model."""

    target: str
    draft: str

    def __str__(self) -> str:
        """Return the pair as a user would say it."""
        return f"{self.target} with {self.draft}"

    def has_target(self, other: Pair) -> bool:
        """Return whether `other` has this target."""
        return _same(self.target, other.target)

    def has_draft(self, other: Pair) -> bool:
        """Return whether `other` has this draft."""
        return _same(self.draft, other.draft)


def _same(one: str, other: str) -> bool:
    """Return whether two names mean one model: equal but for case, owner, and a suffix such as -Instruct or .Q4_1."""
    if ANY in (one, other):
        return True
    (short, _, cut), (long, _, other_cut) = sorted(
        (each.casefold().rpartition("/")[2].partition(" less ") for each in (one, other)),
        key=lambda parts: len(parts[0]),
    )
    return cut == other_cut and long.startswith(short) and not long[len(short) :][:1].isalnum()


def pair_from_mapping(mapping: Mapping[str, Any], source: str) -> Pair | None:
    """Return the pair that an acceptance file names, None where it names none; Bernoulli's is any unless it says so.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    node = CheckedMapping(source, "", mapping)
    if "pair" not in mapping:
        return Pair(ANY, ANY) if mapping["kind"] == "bernoulli" else None
    pair = node.child("pair", "target and draft")
    pair.only(Pair._fields)
    return Pair(*(pair.text(name, "the name of a model, or any") for name in Pair._fields))


def acceptance_from_mapping(mapping: Mapping[str, Any], source: str, folder: Path = Path()) -> Acceptance | Recording:
    """Return what a YAML in `folder` describes.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    if CheckedMapping(source, "", mapping).choice("kind", (*KEYS, "recorded")) == "recorded":
        return recording_from_mapping(mapping, source, folder)
    return curves_from_mapping(mapping, source)


def tape_of(
    acceptance: Acceptance | Recording, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int
) -> Tape:
    """Return the tape of requests `rows` (N,) of a trace whose classes (N,) index `category`."""
    if isinstance(acceptance, Recording):
        return recorded_tape(acceptance, category, slo_class, rows, seed)
    return draw_tape(acceptance, category, slo_class, rows, seed)
