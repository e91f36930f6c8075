"""Kinds of acceptance file, and the pair of models that a file is of.

A wrong key is a SpecsimError of one line that names it and its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from specsim.acceptance.accepted_lengths import runs
from specsim.acceptance.curves import CONFIDENCE, bernoulli, curves
from specsim.acceptance.positions import length, pinned, positions
from specsim.acceptance.recorded import recording_of
from specsim.acceptance.trace import AcceptanceModel, Evidence
from specsim.files.checked_mapping import CheckedMapping
from specsim.registry import Kinds

ANY = "any"
OTHER_TRAINING = re.compile(r"^\.\d+(?!\w)|-\d{4}\b")
"""In a name behind that of a model: a version, or the month of a training."""
KINDS: Kinds[AcceptanceModel] = Kinds(
    "acceptance",
    {
        "bernoulli": lambda node, _: bernoulli(node),
        "curves": lambda node, _: curves(node),
        "length": lambda node, _: length(node),
        "pinned": lambda node, _: pinned(node),
        "positions": lambda node, _: positions(node),
        "recorded": recording_of,
        "runs": runs,
    },
    AcceptanceModel,
    frozenset({"description", "pair"}),
    "docs/your-acceptance.md",
)


class Pair(NamedTuple):
    """The names of a target and of its drafter; ``any`` stands for every model."""

    target: str
    draft: str

    def __str__(self) -> str:
        """Return the pair in words for the user."""
        return f"{self.target} with {self.draft}"


def same_model(one: str, other: str) -> bool:
    """Return whether two names mean one model: equal but for case, owner, and a suffix such as -Instruct or .Q4_1.

    A version or the month of a training, as in -2507 and V3.1, is of another model.
    """
    if ANY in (one, other):
        return True
    (short, _, cut), (long, _, other_cut) = sorted(
        (each.casefold().rpartition("/")[2].partition(" less ") for each in (one, other)),
        key=lambda parts: len(parts[0]),
    )
    rest = long[len(short) :]
    return cut == other_cut and long.startswith(short) and not OTHER_TRAINING.search(rest) and not rest[:1].isalnum()


def pair_from_mapping(mapping: Mapping[str, Any], source: str, evidence: Evidence) -> Pair | None:
    """Return the pair that an acceptance file names; without one, any pair if `evidence` is ``assumed``, else None."""
    node = CheckedMapping(source, "", mapping)
    if "pair" not in mapping:
        return Pair(ANY, ANY) if evidence == "assumed" else None
    pair = node.child("pair", "target and draft")
    pair.only(Pair._fields)
    return Pair(*(pair.text(name, "the name of a model, or any") for name in Pair._fields))


def acceptance_from_mapping(
    mapping: Mapping[str, Any],
    source: str,
    folder: Path = Path(),
    plugins: Mapping[str, ModuleType] | None = None,
) -> AcceptanceModel:
    """Return the acceptance that the keys of a YAML in `folder` describe; `_target_` may name a class of `plugins`.

    Reported confidences are left to `specsim.acceptance.curves`.
    """
    own = {key: value for key, value in mapping.items() if key != CONFIDENCE or not isinstance(value, Mapping)}
    return KINDS.made(CheckedMapping(source, "", own), folder, plugins or {})
