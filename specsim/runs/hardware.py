"""The hardware of a run: weights, KV cache, replicas."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.config.groups import Choice, Choices
from specsim.config.schema import written
from specsim.errors import SpecsimError
from specsim.latency.drafter import Drafter, check_model, drafter_from_mapping, equipped
from specsim.latency.engine import Engine, engine_from_mapping
from specsim.latency.profile import Profile, profile_from_mapping
from specsim.metrics.requests import Window, counts
from specsim.server.kv_cache import Memory
from specsim.server.state import Machine


def counted(
    warmup: float | str | Window | None, arrival_s: npt.NDArray[np.float64]
) -> tuple[Window | None, str | None]:
    """Return the seconds of arrival [a, b] that the metrics count, None for all, and a note about a warm-up.

    Parameters
    ----------
    warmup : seconds, a share of the arrivals' span such as "10%", or [a, b]. arrival_s : (N,), rising.

    Raises
    ------
    SpecsimError
        One line when nothing is left to count, or nothing left out.
    """
    last_s = float(arrival_s[-1])
    if warmup is None or isinstance(warmup, tuple):
        if warmup is not None and not counts(warmup, arrival_s).any():
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


def closed_loop(clients: int | None, requests: int, sessions: int, rivals: Mapping[str, object]) -> str | None:
    """Return a note about so many clients that wait for their answers; None where requests arrive by themselves.

    `rivals` are by key the settings that need arrivals which are known before the run.

    Raises
    ------
    SpecsimError
        One line when there are more clients than sessions, or a rival is given; a request alone is a session.
    """
    if clients is None:
        return None
    if clients > sessions:
        what = "requests" if sessions == requests else "sessions"
        raise SpecsimError(f"concurrency: {clients} is not a whole number between 1 and {sessions}, the {what}")
    for name, value in rivals.items():
        if value is not None:
            said = f"{name}: {written(value)} and concurrency={clients}: clients send as they are answered"
            raise SpecsimError(f"{said}; expected one of them")
    return f"concurrency={clients}: requests are sent as answers come; the trace's arrivals are not used"


class Served(NamedTuple):
    """Choices and settings that say what a run is served on; `profiles` are those of replicas beside the first."""

    engine: Choice
    drafter: Choice
    profile: Choice
    belief: Mapping[str, Any] | None
    names: tuple[str, ...]
    profiles: Mapping[str, Mapping[str, Any]]


class Hardware(NamedTuple):
    """The engine, and what passes take on it: the truth, and what schedulers believe."""

    engine: Engine
    truth: Profile
    belief: Profile

    def speculating(self, by_table: bool) -> Hardware:
        """Return the same where the server is configured to speculate; `by_table`: see `Engine.speculating`."""
        return Hardware(self.engine, *(self.engine.speculating(each, by_table) for each in self[1:]))

    def memory(self, block_tokens: int) -> Memory:
        """Return the memory of a replica, in blocks of so many tokens."""
        return Memory(
            int(self.truth.usable_kv_bytes),
            block_tokens,
            self.truth.target.kv_bytes_per_token,
            self.truth.draft.kv_bytes_per_token,
            self.truth.draft.weights_bytes,
        )

    def machine(self, block_tokens: int, host_bytes_per_s: float) -> Machine:
        """Return what a replica runs on; each of its GPUs moves so many bytes to the host and back."""
        return Machine(self.truth, self.belief, self.memory(block_tokens), host_bytes_per_s * self.truth.gpus)

    def baseline_s(self, stated: Mapping[str, float]) -> tuple[float, str | None]:
        """Return the baseline latency that ratios are multiples of, the model's of `stated` or ours, and a note."""
        if not stated:
            return self.truth.baseline_s, None
        if self.truth.target.name in stated:
            return stated[self.truth.target.name], None
        return self.truth.baseline_s, (
            f"the trace states no baseline latency for {self.truth.target.name}: its ratios are multiples of the "
            f"profile's {self.truth.baseline_s * 1000:.1f} ms"
        )


class Fleet(NamedTuple):
    """The hardware of the replicas of a run.

    Attributes
    ----------
    first : of the first replica, and of all where `names` is empty.
    names : the profile of each replica. by_name : what each of them is, as messages name it and as it runs.
    """

    first: Hardware
    names: tuple[str, ...]
    by_name: Mapping[str, tuple[str, Hardware]]

    def each(self) -> Iterator[tuple[str, Hardware]]:
        """Yield what there is, once, and how messages name it; the first replica's first."""
        yield from self.by_name.values()

    def speculating(self, by_table: bool) -> Fleet:
        """Return the same where the servers are configured to speculate; `by_table`: see `Engine.speculating`."""
        by_name = {name: (named, each.speculating(by_table)) for name, (named, each) in self.by_name.items()}
        return Fleet(self.first.speculating(by_table), self.names, by_name)

    @property
    def replicas(self) -> tuple[Hardware, ...]:
        """The hardware of each replica; empty where all are alike."""
        return tuple(self.by_name[name][1] for name in self.names)

    def baseline_s(self, stated: Mapping[str, float]) -> tuple[float, str | None]:
        """Return the baseline latency that ratios are multiples of, the first profile's, and a note: see `Hardware`."""
        found_s, note = self.first.baseline_s(stated)
        (named, first), *others = self.each()
        of_first = found_s == first.truth.baseline_s
        if note is None and of_first and any(each.truth.baseline_s != found_s for _, each in others):
            said = "ratios of objectives are multiples of the first replica's baseline latency"
            note = f"{said}: {named}, {found_s * 1000:.1f} ms"
        return found_s, note


def fleet(
    chosen: Choices,
    belief: Mapping[str, Any] | None,
    names: tuple[str, ...] | None,
    plugins: Mapping[str, ModuleType],
    profile: Profile | None,
) -> Fleet:
    """Return what a run is served on.

    Parameters
    ----------
    belief : keys of the profile that schedulers believe in, None for the truth. names : the profile of each replica.
    profile : stands in the place of the one that was chosen.

    Raises
    ------
    SpecsimError
        One line about a value of the engine, the drafter, a profile or the belief, or about models that differ.
    """
    served = Served(chosen.engine, chosen.drafter, chosen.profile, belief, names or (), chosen.profiles)
    if profile is not None or "_target_" in chosen.drafter.values:
        return _fleet(served, plugins, profile)
    kept: Fleet = pickle.loads(_kept_fleet(pickle.dumps(served)))
    return kept


@lru_cache(maxsize=64)
def _kept_fleet(served: bytes) -> bytes:
    """Return a fleet that a sweep asks for at each of its points, to be copied for each."""
    return pickle.dumps(_fleet(pickle.loads(served), {}, None))


def _fleet(chosen: Served, plugins: Mapping[str, ModuleType], profile: Profile | None) -> Fleet:
    engine = engine_from_mapping(chosen.engine.values, str(chosen.engine))
    beside = str(chosen.drafter)
    drafter = drafter_from_mapping(chosen.drafter.values, beside, chosen.drafter.folder, plugins)

    def running(given: Profile, named: str) -> Profile:
        return _with_drafter(engine.running(given), named, drafter, beside)

    def served(keys: Mapping[str, Any], named: str, given: Profile | None = None) -> Hardware:
        truth, belief = running(given or profile_from_mapping(keys, named), named), chosen.belief
        if belief is None:
            return Hardware(engine, truth, truth)
        believed = belief if "name" in belief else {**keys, **belief}
        return Hardware(engine, truth, running(profile_from_mapping(believed, "belief"), "belief"))

    first, named = chosen.profile.name, str(chosen.profile)
    found = {first: (named, served(chosen.profile.values, named, profile))}
    for name in dict.fromkeys(chosen.names):
        if name not in found:
            where = f"replica_profiles={name}"
            found[name] = where, served(chosen.profiles[name], where)
    _check_models(found)
    return Fleet(found[first][1], chosen.names, found)


def _check_models(found: Mapping[str, tuple[str, Hardware]]) -> None:
    """Refuse replicas of different models: outputs and acceptance are of one target and one drafter."""
    (first_named, first), *others = found.values()
    for named, each in others:
        for role in ("target", "draft"):
            one, other = (getattr(hardware.truth, role).name for hardware in (first, each))
            if one != other:
                said = f"{named}: its {role} is {other}, that of {first_named} is {one}"
                raise SpecsimError(f"{said}; expected the same models everywhere")


def _with_drafter(profile: Profile, named: str, drafter: Drafter, beside: str) -> Profile:
    """Return a profile with this drafter beside its target.

    Raises
    ------
    SpecsimError
        When the drafter leaves no memory for the cache.
    """
    check_model(profile.target, named)
    check_model(profile.draft, named)
    profile = equipped(profile, drafter, beside)
    if profile.usable_kv_bytes <= 0:
        raise SpecsimError(f"{named}: the weights of the target and of {profile.draft.name} leave no memory for KV")
    return profile
