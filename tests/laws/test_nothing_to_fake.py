"""Schedulers that are wrong, by a slip or on purpose: each is told so, and none is paid for it."""

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specsim.server.planning
from specsim.core.passes import NOBODY, DraftPass, TargetPass
from specsim.core.protocols import Step, View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.errors import IllegalPass, SchedulerFault
from specsim.server.planning import Livelock
from specsim.simulation import run
from tests.layers import grow
from tests.made import acceptance_trace, memory, refusal, requests, simulation

TOLD = requests([0.0, 0.0, 0.1], [9, 6, 7], [30, 30, 30])
OUTPUT = [20, 17, 30]


def ids_of(view: View) -> Ids:
    return np.array([*view.running.tolist(), *view.waiting], dtype=np.int64)


class Speculative:
    """Chains of two for all who decode, everything else in one pass."""

    def step(self, view: View) -> Step:
        ids = ids_of(view)
        forest: Any = Forest.roots(len(ids))
        if view.emitted_tokens[ids].all():
            forest = yield DraftPass(ids, view.draft_pending(ids), forest, np.arange(len(ids)), 1)
            forest = yield self.second(ids, forest)
        yield self.verify(TargetPass(ids, view.pending(ids), forest))

    def second(self, ids: Ids, forest: Forest) -> DraftPass:
        return DraftPass(ids, NOBODY, forest, np.arange(len(ids), 2 * len(ids)), 1)

    def verify(self, right: TargetPass) -> TargetPass:
        return right


def drafting(name: str, **changed: Any) -> type[Speculative]:
    """A scheduler whose second draft pass has these fields, of which a function is told the ids and the forest."""

    def second(self: Speculative, ids: Ids, forest: Forest) -> DraftPass:
        made = {field: value(ids, forest) if callable(value) else value for field, value in changed.items()}
        return Speculative.second(self, ids, forest)._replace(**made)

    return type(name, (Speculative,), {"second": second})


def verifying(name: str, **changed: Any) -> type[Speculative]:
    """A scheduler whose verifying pass has these fields, each made of the right one."""

    def verify(self: Speculative, right: TargetPass) -> TargetPass:
        return right._replace(**{field: made(getattr(right, field)) for field, made in changed.items()})

    return type(name, (Speculative,), {"verify": verify})


def faked(scheduler: Callable[[], Any], **more: Any) -> Any:
    return run(simulation(TOLD, OUTPUT, scheduler, text=acceptance_trace(len(TOLD), 0.9), **more))


class TheSameForestForEver(Speculative):
    def __init__(self) -> None:
        self.kept: Any = None

    def verify(self, right: TargetPass) -> TargetPass:
        if not right.forest.draft_nodes:
            return right
        if self.kept is None or self.kept.rows != right.forest.rows:
            self.kept = right.forest
        return right._replace(forest=self.kept)


def chains_of_ten(forest: Forest) -> Forest:
    """Return chains that no drafter has drafted: the first token's slot, over and over."""
    for _ in range(10 if forest.draft_nodes else 0):
        parent, sure = np.arange(len(forest) - forest.rows, len(forest)), np.ones(forest.rows)
        forest = grow(forest, parent, np.zeros_like(parent), sure, sure, forest.slot[parent])
    return forest


def deeper_copy(forest: Forest) -> Forest:
    """Return the drafted chain as a forest of its own, in which the nodes lie deeper."""
    if not forest.draft_nodes:
        return forest
    numbers = np.stack([forest.row, forest.parent, forest.depth * 50, forest.token, forest.slot])
    return Forest(forest.rows, numbers, np.stack([forest.probability, forest.path_probability]))


class AnothersTrees(Speculative):
    def verify(self, right: TargetPass) -> TargetPass:
        return right._replace(requests=right.requests[::-1].copy()) if right.forest.draft_nodes else right


FLOATS, SMALL = (f"is an array (2,) of {kind}; expected a numpy array (n,) of int64" for kind in ("float64", "int32"))
REFUSED: dict[type[Speculative], str] = {
    TheSameForestForEver: "a forest of the past",
    verifying("ForgedNodes", forest=chains_of_ten): "a forest that no draft pass has answered",
    verifying("ForgedCopy", forest=deeper_copy): "a forest that no draft pass has answered",
    AnothersTrees: "a forest of requests 0, 1 in a pass of requests 1, 0",
    drafting("ALeafOnceMore", leaves=lambda ids, _: np.arange(len(ids)), width=2): "leaf 0 has been extended",
    drafting("ALeafTenTimes", leaves=lambda ids, _: np.repeat(ids + len(ids), 10)): "leaf 2 is named twice",
    drafting("NoBeam", beam=0): "DraftPass.beam is 0 (int); expected a whole number of at least 1",
    drafting("TextAsTime", stationary_until_s="1"): "DraftPass.stationary_until_s is '1' (str); expected a time",
    drafting("EndlessDepth", depth=1 << 40): "DraftPass.depth is 1099511627776; expected at most 1,024",
    drafting("FloatLimits", depth=2, max_depth=lambda ids, _: ids * 1.0): f"DraftPass.max_depth {FLOATS}",
    drafting("NoDeeperThanItIs", depth=2, max_depth=lambda ids, _: np.ones_like(ids)): (
        "leaf 2 is at depth 1, and DraftPass.max_depth of its row is 1; expected more where"
    ),
    drafting("TreesThatExplode", width=4, depth=40): "tokens; expected at most 2,097,152",
    verifying("FloatChunks", scheduled_tokens=lambda tokens: tokens * 1.0): f"TargetPass.scheduled_tokens {FLOATS}",
    verifying("SmallIds", requests=lambda ids: ids.astype(np.int32)): f"TargetPass.requests {SMALL}",
    verifying("NoTime", stationary_until_s=lambda _: np.nan): "TargetPass.stationary_until_s is nan",
    verifying("NoForest", forest=lambda _: None): "TargetPass.forest is None; expected a Forest",
}


@pytest.mark.parametrize("scheduler", REFUSED, ids=lambda each: each.__name__)
def test_a_pass_that_no_server_could_run_is_refused_in_one_line(scheduler):
    with pytest.raises(IllegalPass, match=re.escape(REFUSED[scheduler])) as caught:
        faked(scheduler)
    assert re.fullmatch(rf"scheduler {scheduler.__name__} at [^\n]*test_nothing_to_fake\.py:\d+\)", str(caught.value))


def test_passes_asked_for_at_once_hold_slots_like_any_other():
    with pytest.raises(IllegalPass, match=r"more cache wanted.*test_nothing_to_fake\.py:\d+\)$"):
        faked(drafting("DeeperThanTheMemory", depth=900), pool=memory(TOLD, 4.0))


class Leaving(Speculative):
    def use_oracle(self, oracle: Any) -> None:
        sys.exit(0)


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


class Raising(Speculative):
    def step(self, view: View) -> Step:
        raise Mute
        yield


class Yielding(Speculative):
    def step(self, view: View) -> Step:
        yield Mute()  # type: ignore[misc]


FAULTS = {
    verifying("WritesAToken", forest=lambda forest: forest.depth.fill(9)): "assignment destination is read-only",
    verifying("WritesADepth", forest=lambda forest: setattr(forest, "depth", 9)): (
        "FrozenInstanceError: cannot assign to field 'depth'"
    ),
    Leaving: r"scheduler Leaving: SystemExit: 0 \(.*test_nothing_to_fake\.py:\d+\)",
    Raising: "scheduler Raising at 0 s: Mute: Mute, whose text cannot be made",
    Yielding: "step yielded a Mute without a representation",
}


@pytest.mark.parametrize("scheduler", FAULTS, ids=lambda each: each.__name__)
def test_errors_and_values_that_cannot_be_shown_are_still_one_line(scheduler):
    with pytest.raises(SchedulerFault, match=FAULTS[scheduler]):
        faked(scheduler)


class Again(Speculative):
    """Extends the same leaves of the same forest twice, and verifies the second answer: paid for twice, so it may."""

    def step(self, view: View) -> Step:
        ids = ids_of(view)
        forest: Any = Forest.roots(len(ids))
        if view.emitted_tokens[ids].all():
            leaves = np.arange(len(ids))
            forest = yield DraftPass(ids, view.draft_pending(ids), forest, leaves, 2)
            yield DraftPass(ids, NOBODY, forest, leaves + len(ids), 1)
            forest = yield DraftPass(ids, NOBODY, forest, leaves + len(ids), 2)
        yield TargetPass(ids, view.pending(ids), forest)


FIRST_NODES = verifying("FirstNodes", forest=lambda forest: forest.subset(forest.depth < 2))


@pytest.mark.parametrize("scheduler", [Speculative, Again, FIRST_NODES])
def test_trees_of_this_step_may_be_drafted_anew_or_cut(scheduler):
    progress = faked(scheduler).progress
    assert progress.emitted_tokens.tolist() == OUTPUT
    assert progress.accepted_tokens.sum() > 0
    assert (progress.accepted_tokens <= 2 * progress.verifications).all()


class Evicting:
    """Prefills the one request, then the other in its place, for ever."""

    def step(self, view: View) -> Step:
        one = np.array(view.waiting[:1], dtype=np.int64)
        yield TargetPass(one, np.array([1]), Forest.roots(1), evict=view.running)


class Drafting:
    """Feeds the drafter, and takes its cache away again."""

    def step(self, view: View) -> Step:
        one = np.array(view.waiting[:1], dtype=np.int64)
        yield DraftPass(one, view.draft_pending(one), Forest.roots(1), evict=view.running)


@pytest.mark.parametrize("scheduler", [Evicting, Drafting])
def test_passes_that_bring_no_token_come_to_an_end(scheduler, monkeypatch):
    monkeypatch.setattr(specsim.server.planning, "PASSES", 2000)
    said = r"passes without a token or a longer cache: .*was preempted [\d,]+ times"
    with pytest.raises(Livelock, match=f"^scheduler {scheduler.__name__} at .*{said}"):
        faked(scheduler, keep_passes=False)


def test_a_long_prompt_in_small_chunks_is_no_stall(monkeypatch):
    class OneByOne:
        def step(self, view: View) -> Step:
            ids = ids_of(view)
            yield TargetPass(ids, np.ones_like(ids), Forest.roots(len(ids)))

    monkeypatch.setattr(specsim.server.planning, "PASSES", 40)
    monkeypatch.setattr(specsim.server.planning, "LOOK_EVERY", 10)
    told = requests([0.0], [500], [5])
    assert run(simulation(told, [5], OneByOne)).progress.emitted_tokens.tolist() == [5]


def for_ever(*_: Any) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:
            pass


STUCK = {"step": "scheduler", "begin": "scheduler", "on_pass": "observers", "noted": "observers", "route": "router"}


@pytest.mark.parametrize(("method", "key"), STUCK.items())
def test_what_never_ends_is_named(method, key):
    stuck = type("Stuck", (Speculative,), {"on_pass": id, method: for_ever})
    more = {"scheduler": Speculative, key: [stuck] if key == "observers" else stuck}
    said = refusal(faked, **more, replicas=2, step_limit_s=0.2)
    assert re.match(rf"{key.rstrip('s')} Stuck.*: no next pass within step_limit_s of wall .*\(.*fake\.py:\d+\)$", said)
