"""What a scheduler of one's own needs; within one `API_VERSION` these names stay and mean the same.

docs/your-scheduler.md shows them at work. Everything else below `specsim` may move at any time.
"""

from __future__ import annotations

from specsim.pass_shape import PassShape, PassShapes
from specsim.replica.passes import NOBODY, DraftPass, Emitted, Pass, TargetPass
from specsim.replica.protocols import (
    Belief,
    Clairvoyant,
    DraftBelief,
    Foresight,
    ModelBelief,
    Scheduler,
    Step,
    View,
    Wide,
)
from specsim.replica.request import Bools, Floats, Ids, Ints
from specsim.replica.trees import Forest
from specsim.schedulers.continuous import decode
from specsim.schedulers.parts import Batching, Growing, Rows, Speculation, evicting
from specsim.schedulers.selection import neediest_first, select
from specsim.schedulers.speculation import grow_trees, trees_fit, useful_depth

API_VERSION = 1
"""The promise that a scheduler rests on; it rises when one of these names goes or means something else."""

__all__ = [
    "API_VERSION",
    "NOBODY",
    "Batching",
    "Belief",
    "Bools",
    "Clairvoyant",
    "DraftBelief",
    "DraftPass",
    "Emitted",
    "Floats",
    "Foresight",
    "Forest",
    "Growing",
    "Ids",
    "Ints",
    "ModelBelief",
    "Pass",
    "PassShape",
    "PassShapes",
    "Rows",
    "Scheduler",
    "Speculation",
    "Step",
    "TargetPass",
    "View",
    "Wide",
    "decode",
    "evicting",
    "grow_trees",
    "neediest_first",
    "select",
    "trees_fit",
    "useful_depth",
]
