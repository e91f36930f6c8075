"""Where a run's acceptance tape comes from: drawn from curves, or recorded from a real pair of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsim.reading import Node
from specsim.request import Ints
from specsim.world.curves import KEYS, Acceptance, curves_from_mapping, draw_tape
from specsim.world.recorded import Recording, recorded_tape, recording_from_mapping
from specsim.world.tape import Tape


def acceptance_from_mapping(mapping: Mapping[str, Any], source: str, folder: Path = Path()) -> Acceptance | Recording:
    """Return what a YAML in `folder` describes.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    if Node(source, "", mapping).choice("kind", (*KEYS, "recorded")) == "recorded":
        return recording_from_mapping(mapping, source, folder)
    return curves_from_mapping(mapping, source)


def tape_of(
    acceptance: Acceptance | Recording, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int
) -> Tape:
    """Return the tape of requests `rows` (N,) of a trace whose classes (N,) index `category`."""
    if isinstance(acceptance, Recording):
        return recorded_tape(acceptance, category, slo_class, rows, seed)
    return draw_tape(acceptance, category, slo_class, rows, seed)
