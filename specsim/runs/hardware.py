"""The hardware of a run: weights, KV cache, replicas."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.cluster.split import Splitting
from specsim.config.groups import Choices
from specsim.config.schema import Settings, Split, written
from specsim.core.protocols import Drafting
from specsim.errors import SpecsimError
from specsim.latency.drafter import Drafter, check_model, drafter_from_mapping, equipped, without_drafter
from specsim.latency.engine import Engine, engine_from_mapping
from specsim.latency.profile import Profile, profile_from_mapping
from specsim.metrics.requests import Window, counts
from specsim.registry import TARGET
from specsim.server.kv_cache import Memory
from specsim.server.state import Hardware


def counted(warmup: float | str | Window, arrival_s: npt.NDArray[np.float64]) -> tuple[Window, str | None]:
    """Return the seconds of arrival [a, b] that the metrics count, and a note about what a warm-up leaves out.

    Parameters
    ----------
    warmup : seconds, a share of the arrivals' span such as "10%", or [a, b]. arrival_s : (N,), rising.

    Raises
    ------
    SpecsimError
        One line when nothing is left to count, or nothing left out.
    """
    last_s = float(arrival_s[-1])
    if isinstance(warmup, tuple):
        if not counts(warmup, arrival_s).any():
            raise SpecsimError(f"warmup: no request arrives in {list(warmup)}; the last one arrives at {last_s:g} s")
        return warmup, None
    warmup_s = float(warmup.removesuffix("%")) / 100 * last_s if isinstance(warmup, str) else warmup
    left_out = int((arrival_s < warmup_s).sum())
    if left_out == 0:
        raise SpecsimError(f"warmup: {written(warmup)} of arrivals that span {last_s:g} s leaves nothing out")
    if left_out == len(arrival_s):
        raise SpecsimError(f"warmup: {warmup_s:g} s leaves no request to count; the last one arrives at {last_s:g} s")
    note = f"warmup: {left_out} of {len(arrival_s)} requests arrive in the first {warmup_s:.6g} s and are not counted"
    return (warmup_s, last_s), note


def closed_loop(clients: int, requests: int, sessions: int, rivals: Mapping[str, object]) -> str:
    """Return a note about so many clients that wait for their answers.

    `rivals` are by key the settings that need arrivals which are known before the run.

    Raises
    ------
    SpecsimError
        One line when there are more clients than sessions, or a rival is given; a request alone is a session.
    """
    if clients > sessions:
        what = "requests" if sessions == requests else "sessions"
        raise SpecsimError(f"concurrency: {clients} is not a whole number between 1 and {sessions}, the {what}")
    for name, value in rivals.items():
        if value is not None:
            said = f"{name}: {written(value)} and concurrency={clients}: clients send as they are answered"
            raise SpecsimError(f"{said}; expected one of them")
    return f"concurrency={clients}: requests are sent as answers come; the trace's arrivals are not used"


class EngineOnProfile(NamedTuple):
    """The engine, and what passes take on it: the truth, and the cost model of schedulers."""

    engine: Engine
    truth: Profile
    cost_model: Profile

    def speculating(self, scheduler: object) -> EngineOnProfile:
        """Return the same where the server is configured to speculate as a scheduler does; see `Engine.speculating`."""
        captured = getattr(scheduler, "by_table", False), getattr(scheduler, "captured_drafts", 0)
        return EngineOnProfile(self.engine, *(self.engine.speculating(each, *captured) for each in self[1:]))

    def without_drafter(self) -> EngineOnProfile:
        """Return the same where the server loads no drafter: all its memory is the target's."""
        return EngineOnProfile(self.engine, *map(without_drafter, self[1:]))

    def replica(self, block_tokens: int, host_bytes_per_s: float) -> Hardware:
        """Return what a replica runs on; each of its GPUs moves so many bytes to the host and back."""
        target, draft = self.truth.target, self.truth.draft
        token_bytes = target.kv_bytes_per_token, draft.kv_bytes_per_token
        memory = Memory(int(self.truth.usable_kv_bytes), block_tokens, *token_bytes, draft.weights_bytes)
        return Hardware(self.truth, self.cost_model, memory, host_bytes_per_s * self.truth.gpus)


class Fleet(NamedTuple):
    """The hardware of the replicas of a run.

    Attributes
    ----------
    names : the profile of each replica; empty where all are alike.
    by_name : what each of them is, as messages name it and as it runs; the first replica's first.
    drafter : beside the target of each.
    """

    names: tuple[str, ...]
    by_name: Mapping[str, tuple[str, EngineOnProfile]]
    drafter: Drafter

    @property
    def first(self) -> EngineOnProfile:
        """The hardware of the first replica, and of all where they are alike."""
        return next(iter(self.by_name.values()))[1]

    @property
    def replicas(self) -> tuple[EngineOnProfile, ...]:
        """The hardware of each replica; empty where all are alike."""
        return tuple(self.by_name[name][1] for name in self.names)

    def gpus(self, replicas: int) -> int:
        """Return the number of GPUs of so many replicas."""
        return sum(each.truth.gpus for each in self.replicas or (self.first,) * replicas)

    def running(self, scheduler: object) -> Fleet:
        """Return the same where the servers are configured to speculate as a scheduler does, or load no drafter.

        A scheduler that does not say whether it drafts has its drafter and pays for no speculation.

        Raises
        ------
        SpecsimError
            When the drafter leaves no memory for the cache.
        """
        if isinstance(scheduler, Drafting) and not scheduler.drafts:
            alone = {name: (named, each.without_drafter()) for name, (named, each) in self.by_name.items()}
            return self._replace(by_name=alone)
        for named, each in self.by_name.values():
            if each.truth.usable_kv_bytes <= 0:
                said = f"the weights of the target and of {each.truth.draft.name} leave no memory for KV"
                raise SpecsimError(f"{named}: {said}; expected more memory, or a scheduler that never drafts")
        if not isinstance(scheduler, Drafting):
            return self
        speculating = {name: (named, each.speculating(scheduler)) for name, (named, each) in self.by_name.items()}
        return self._replace(by_name=speculating)

    def baseline_s(self, stated: Mapping[str, float]) -> tuple[float, str | None]:
        """Return the baseline latency that ratios are multiples of, and a note.

        It is that of the first replica's target, `stated` by model, or else of its profile.
        """
        (named, first), *others = self.by_name.values()
        model, own_s = first.truth.target.name, first.truth.baseline_s
        if model in stated:
            return stated[model], None
        if stated:
            said = f"the trace states no baseline latency for {model}: its ratios are multiples of the profile's"
            return own_s, f"{said} {own_s * 1000:.1f} ms"
        if all(each.truth.baseline_s == own_s for _, each in others):
            return own_s, None
        said = "ratios of objectives are multiples of the first replica's baseline latency"
        return own_s, f"{said}: {named}, {own_s * 1000:.1f} ms"


def fleet(
    chosen: Choices, settings: Settings, plugins: Mapping[str, ModuleType], handed: Profile | None = None
) -> Fleet:
    """Return what a run is served on; the profile that was `handed` in stands in the place of the chosen one.

    Raises
    ------
    SpecsimError
        One line about a value of the engine, the drafter, a profile or the cost model, or about models that differ.
    """
    if handed is not None or chosen.drafter.kind == TARGET:
        return _fleet(chosen, settings, plugins, handed)
    of_files = chosen.engine, chosen.drafter, chosen.profile, chosen.profiles, chosen.cost_model
    asked = pickle.dumps((*of_files, settings.replica_profiles))
    if asked not in _kept:
        if len(_kept) == MOST_KEPT:
            _kept.clear()
        _kept[asked] = _fleet(chosen, settings, plugins, None)
    return _kept[asked]


_kept: dict[bytes, Fleet] = {}
"""Fleets that a sweep asks for at each of its points, by what they are made of."""
MOST_KEPT = 64


def _fleet(chosen: Choices, settings: Settings, plugins: Mapping[str, ModuleType], handed: Profile | None) -> Fleet:
    engine = engine_from_mapping(chosen.engine.values, str(chosen.engine))
    beside, cost_model, names = str(chosen.drafter), chosen.cost_model, settings.replica_profiles or ()
    drafter = drafter_from_mapping(chosen.drafter.values, beside, chosen.drafter.folder, plugins)

    def running(given: Profile, named: str) -> Profile:
        return _with_drafter(engine.running(given), named, drafter, beside)

    def served(keys: Mapping[str, Any], named: str, given: Profile | None = None) -> EngineOnProfile:
        truth = running(given or profile_from_mapping(keys, named), named)
        if cost_model is None:
            return EngineOnProfile(engine, truth, truth)
        believed = cost_model.values if cost_model.takes("name") else {**keys, **cost_model.values}
        return EngineOnProfile(engine, truth, running(profile_from_mapping(believed, "cost_model"), "cost_model"))

    first, named = chosen.profile.name, str(chosen.profile)
    found = {first: (named, served(chosen.profile.values, named, handed))}
    for name in dict.fromkeys(names):
        if name not in found:
            where = f"replica_profiles={name}"
            found[name] = where, served(chosen.profiles[name], where)
    _check_models(found)
    return Fleet(names, found, drafter)


def _check_models(found: Mapping[str, tuple[str, EngineOnProfile]]) -> None:
    """Refuse replicas of different models: outputs and acceptance are of one target and one drafter."""
    (first_named, first), *others = found.values()
    for named, each in others:
        for role in ("target", "draft"):
            one, other = (getattr(hardware.truth, role).name for hardware in (first, each))
            if one != other:
                said = f"{named}: its {role} is {other}, that of {first_named} is {one}"
                raise SpecsimError(f"{said}; expected the same models everywhere")


def _with_drafter(profile: Profile, named: str, drafter: Drafter, beside: str) -> Profile:
    """Return a profile with this drafter beside its target."""
    check_model(profile.target, named)
    check_model(profile.draft, named)
    return equipped(profile, drafter, beside)


GIGA = 1e9


def splitting(split: Split, replicas: int, hardware: Sequence[Hardware]) -> Splitting:
    """Return how replicas are split of which some only read prompts (`split.prefill`).

    Raises
    ------
    SpecsimError
        One line when no replica would decode, there is no link, or caches of one replica are of no use on another.
    """
    prefill, _ = pools(split, replicas)
    if split.link_gb_per_s is None:
        raise SpecsimError(f"split.prefill={prefill}: by which link? expected split.link_gb_per_s too (1e9 bytes/s)")
    _check_layout(hardware)
    return Splitting(prefill, split.link_gb_per_s * GIGA, split.link_latency_s or 0.0)


def pools(split: Split, replicas: int) -> tuple[int, ...]:
    """Return the sizes of the pools that a run's routers choose in: one, or those that read prompts and that decode.

    Raises
    ------
    SpecsimError
        One line when no replica would decode.
    """
    prefill = split.prefill
    if prefill is None:
        return (replicas,)
    if prefill >= replicas:
        raise SpecsimError(f"split.prefill={prefill}: leaves none to decode; expected fewer than replicas={replicas}")
    return prefill, replicas - prefill


def _check_layout(hardware: Sequence[Hardware]) -> None:
    for role in ("target", "draft"):
        found = sorted({getattr(each.memory, f"{role}_token_bytes") for each in hardware})
        if len(found) > 1:
            raise SpecsimError(
                f"split.prefill: the {role}'s cache takes {' or '.join(map(str, found))} bytes per token, by profile; "
                "expected the same everywhere, since it moves"
            )
