"""The public names for a scheduler, trace, acceptance, drafter, router or observer of your own.

Within one `API_VERSION` these names stay and mean the same. Each page shows its own at work: docs/your-scheduler.md,
docs/your-trace.md, docs/your-acceptance.md, docs/drafters.md, docs/replicas.md, docs/observers.md. Everything else
below `specsim` may move at any time.
"""

from __future__ import annotations

from specsim.acceptance.trace import AcceptanceModel, AcceptanceTrace, Evidence, Layout, Pools
from specsim.cluster.routing import Coming, Planning, Router, Server
from specsim.core.passes import NOBODY, DraftPass, Emitted, Pass, TargetPass
from specsim.core.protocols import (
    Beginning,
    CostModel,
    DraftCosts,
    Noting,
    Observer,
    Oracle,
    PassCosts,
    PassEvent,
    Scheduler,
    Step,
    UsesOracle,
    View,
    Wide,
)
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.latency.drafter import Drafter
from specsim.latency.forms import Linear, Roofline
from specsim.latency.model import ModelLatency, Profile
from specsim.latency.profile import load_profile
from specsim.pass_shape import PassShape, PassShapes
from specsim.rng import Words, mix, stream_keys, uniforms
from specsim.schedulers.continuous import decode
from specsim.schedulers.parts.growth import grow, grow_trees, trees_fit, useful_depth
from specsim.schedulers.parts.protocols import Batching, Growing, Sequences, Speculation, evicting
from specsim.schedulers.parts.selection import neediest_first, select
from specsim.workload.slo import Objectives, SloClass, SloMix
from specsim.workload.trace import Trace, TraceReader, TraceSource
from specsim.workload.user_file import trace_of

API_VERSION = 1
"""The interface that a scheduler rests on; it rises when one of these names goes or means something else."""

__all__ = [
    "API_VERSION",
    "NOBODY",
    "AcceptanceModel",
    "AcceptanceTrace",
    "Batching",
    "Beginning",
    "Bools",
    "Coming",
    "CostModel",
    "DraftCosts",
    "DraftPass",
    "Drafter",
    "Emitted",
    "Evidence",
    "Floats",
    "Forest",
    "Growing",
    "Ids",
    "Ints",
    "Layout",
    "Linear",
    "ModelLatency",
    "Noting",
    "Objectives",
    "Observer",
    "Oracle",
    "Pass",
    "PassCosts",
    "PassEvent",
    "PassShape",
    "PassShapes",
    "Planning",
    "Pools",
    "Profile",
    "Roofline",
    "Router",
    "Scheduler",
    "Sequences",
    "Server",
    "SloClass",
    "SloMix",
    "Speculation",
    "Step",
    "TargetPass",
    "Trace",
    "TraceReader",
    "TraceSource",
    "UsesOracle",
    "View",
    "Wide",
    "Words",
    "decode",
    "evicting",
    "grow",
    "grow_trees",
    "load_profile",
    "mix",
    "neediest_first",
    "select",
    "stream_keys",
    "trace_of",
    "trees_fit",
    "uniforms",
    "useful_depth",
]
