"""What a run is served on: its engine, the true profile, and the profile that schedulers believe."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from specsim.errors import SpecsimError
from specsim.latency.drafter import Drafter, drafter_from_mapping, equipped
from specsim.latency.engine import Engine, engine_from_mapping
from specsim.latency.profile import Profile, profile_from_mapping
from specsim.replica.kv_pool import Memory
from specsim.runs.chosen import folder, source


class Hardware(NamedTuple):
    """The engine, and what passes take on it: the truth, and what schedulers believe."""

    engine: Engine
    truth: Profile
    belief: Profile

    def memory(self, block_tokens: int) -> Memory:
        """Return the memory of a replica, in blocks of so many tokens."""
        return Memory(
            int(self.truth.usable_kv_bytes),
            block_tokens,
            self.truth.target.kv_bytes_per_token,
            self.truth.draft.kv_bytes_per_token,
        )

    def baseline_s(self, trace: Mapping[str, Any]) -> tuple[float, str | None]:
        """Return the baseline latency that ratios are multiples of, the trace's for this model or ours, and a note."""
        stated: Mapping[str, float] = trace.get("baselines_s") or {}
        if not stated:
            return self.truth.baseline_s, None
        if self.truth.target.name in stated:
            return float(stated[self.truth.target.name]), None
        return self.truth.baseline_s, (
            f"the trace states no baseline latency for {self.truth.target.name}: its ratios are multiples of the "
            f"profile's {self.truth.baseline_s * 1000:.1f} ms"
        )


def hardware(config: Mapping[str, Any], plugins: Mapping[str, ModuleType], profile: Profile | None) -> Hardware:
    """Return what the configuration's run is served on; `profile` stands in the place of the one it describes.

    Raises
    ------
    SpecsimError
        One line about a value of the engine, the drafter, the profile or the belief.
    """
    engine = engine_from_mapping(config["engine"], source("engine", config))
    beside, named = source("drafter", config), source("profile", config)
    drafter = drafter_from_mapping(config["drafter"], beside, folder("drafter", config), plugins)
    running = engine.running(profile or profile_from_mapping(config["profile"], named))
    truth = _with_drafter(running, named, drafter, beside)
    if config["belief"] is None:
        return Hardware(engine, truth, truth)
    believed = engine.running(profile_from_mapping(config["belief"], "belief"))
    return Hardware(engine, truth, _with_drafter(believed, "belief", drafter, beside))


def _with_drafter(profile: Profile, named: str, drafter: Drafter, beside: str) -> Profile:
    """Return a profile with this drafter beside its target.

    Raises
    ------
    SpecsimError
        When the drafter leaves no memory for the cache.
    """
    profile = equipped(profile, drafter, beside)
    if profile.usable_kv_bytes <= 0:
        raise SpecsimError(f"{named}: the weights of the target and of {profile.draft.name} leave no memory for KV")
    return profile
