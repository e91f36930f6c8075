"""Objects that Python hands in: they stand in the place of what a configuration describes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from specsim.latency.model import Profile
from specsim.replica.protocols import Scheduler
from specsim.workload.slo import SloMix
from specsim.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class Given:
    """What was handed in; None where the configuration describes it.

    Attributes
    ----------
    scheduler : makes a fresh scheduler for a replica. defined_in : the module that its code stands in.
    """

    scheduler: Callable[[], Scheduler] | None = None
    defined_in: str | None = None
    trace: Trace | None = None
    profile: Profile | None = None
    slo: SloMix | None = None

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The loaded modules outside specsim that the objects rest on."""
        name = self.defined_in
        return (sys.modules[name],) if name in sys.modules and name.partition(".")[0] != "specsim" else ()


NOTHING = Given()
