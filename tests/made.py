"""Small made-up hardware, requests, acceptance traces and simulations that the tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st

from specsim.acceptance.trace import AcceptanceTrace, Pools
from specsim.core.passes import DraftPass
from specsim.core.protocols import Scheduler
from specsim.core.request import Facts, Floats, Ids, Requests
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.metrics.recorder import Record
from specsim.metrics.requests import RequestTable, reasons
from specsim.pass_shape import PassShape, PassShapes
from specsim.rng import stream_keys
from specsim.server.kv_cache import Memory
from specsim.server.ledger import Ledger
from specsim.server.state import Progress, empty_rows
from specsim.server.view import LedgerView
from specsim.simulated_backend import GroundTruth
from specsim.simulation import Simulation
from tests.layers import grow

if TYPE_CHECKING:
    from pandas import DataFrame

WIDTH = 4
"""Proposals per position of every made acceptance trace."""
CLASSES = ("urgent", "chat", "batch")
TPOT_SLO_S = np.array([0.03, 0.2, np.nan])
TTFT_SLO_S = np.array([np.nan, 1.0, np.nan])


@dataclass(frozen=True)
class Linear:
    """T = alpha * context + gamma * batched + delta."""

    alpha: float
    gamma: float
    delta: float
    one_pass: bool = False
    expands: bool = False
    cached: bool = True
    max_depth: int = 1 << 20
    bend_tokens: float | None = None
    drafted_s: float = 0.0

    def seconds(self, shape: PassShape) -> float:
        return self.alpha * shape.context_tokens + self.gamma * shape.batched_tokens + self.delta

    def seconds_array(self, shapes: PassShapes) -> Floats:
        drafted_s = self.drafted_s * (np.asarray(shapes.logit_tokens) > shapes.requests)
        return np.asarray(
            self.alpha * shapes.context_tokens + self.gamma * shapes.batched_tokens + self.delta + drafted_s
        )

    def extrapolates(self, shape: PassShape) -> bool:
        return False


def one(context: float, batched: float, pairs: float, logits: float | None = None) -> PassShape:
    """Return the shape of a pass with these counts; all that is batched has logits unless said."""
    return PassShape(context, batched, pairs, 0, batched if logits is None else logits, 0)


def many(context: Any, batched: Any, pairs: Any, logits: Any = None) -> PassShapes:
    """Return the shapes of passes with these counts."""
    counts = (np.asarray(each) for each in (context, batched, pairs, batched if logits is None else logits))
    return PassShapes(*counts, 0, 0)


@dataclass(frozen=True)
class Hardware:
    """A cost model, or the truth: a target, and a draft model."""

    target: Linear
    draft: Linear

    @property
    def baseline_s(self) -> float:
        return self.target.seconds(one(512, 1, 513))

    def slower(self, factor: float) -> Hardware:
        models = self.target, self.draft
        slow = (replace(m, alpha=m.alpha * factor, gamma=m.gamma * factor, delta=m.delta * factor) for m in models)
        return Hardware(*slow)

    def looking_up(self) -> Hardware:
        """Return the same with a drafter that keeps no cache and proposes all depths in one pass."""
        return replace(self, draft=replace(self.draft, one_pass=True, cached=False))


def hardware(alpha: float = 1e-6, gamma: float = 1e-4, delta: float = 0.02) -> Hardware:
    """Return hardware whose drafter costs a tenth of its target."""
    return Hardware(Linear(alpha, gamma, delta), Linear(alpha / 10, gamma / 10, delta / 10))


def requests(
    arrival_s: Sequence[float],
    prompt_tokens: Sequence[int],
    max_tokens: Sequence[int],
    slo_class: Sequence[int] | None = None,
    cached_tokens: Sequence[int] | None = None,
) -> Requests:
    """Return requests of the three made classes: a TPOT objective, both objectives, none."""
    kinds = np.zeros(len(arrival_s), dtype=np.int64) if slo_class is None else np.array(slo_class, dtype=np.int64)
    return Requests(
        np.array(arrival_s, dtype=np.float64),
        np.array(prompt_tokens, dtype=np.int64),
        np.array(max_tokens, dtype=np.int64),
        kinds,
        TPOT_SLO_S[kinds],
        TTFT_SLO_S[kinds],
        np.minimum(np.array(cached_tokens or [0] * len(arrival_s)), np.array(prompt_tokens) - 1),
        CLASSES,
    )


@lru_cache(maxsize=16)
def _pool(agreement: float, rows: int) -> tuple[Any, Any]:
    """Return confidences that fall with rank, and the target's ranks drawn from them, for one pool."""
    rng = np.random.default_rng(int(agreement * 1000))
    top = rng.beta(8 * agreement, 8 * (1 - agreement), rows)[:, None]
    confidence = np.sort(np.concatenate((top, (1 - top) * 0.6 * 0.4 ** np.arange(WIDTH - 1)), axis=1))[:, ::-1].copy()
    rank = (rng.random(rows)[:, None] >= np.cumsum(confidence, axis=1)).sum(axis=1)
    confidence.flags.writeable = rank.flags.writeable = False
    return confidence, rank


def acceptance_trace(
    count: int, agreement: float = 0.7, seed: int = 0, pool_rows: int = 256, silent: bool = False, depths: int = 1
) -> AcceptanceTrace:
    """Return a trace for requests 0..count-1 of a small pool with mixed confidences; `silent` in every third row.

    Of several `depths` each draft position has the pool's rows from another one on.
    """
    confidence, rank = _pool(agreement, pool_rows)
    if silent:
        confidence, rank = confidence.copy(), rank.copy()
        confidence[::3], rank[::3] = 0.0, WIDTH
    if depths > 1:
        confidence, rank = (
            np.concatenate([np.roll(each, 7 * depth, axis=0) for depth in range(depths)]) for each in (confidence, rank)
        )
    start = np.zeros(count, dtype=np.int64)
    return AcceptanceTrace(
        confidence, rank, Pools(start, start, pool_rows, depths), stream_keys(seed, "text", np.arange(count))
    )


def memory(told: Requests, factor: float = 100.0, block_tokens: int = 4, draft_bytes: int = 1) -> Memory:
    """Return a pool of `factor` times what the largest of these requests may ever hold."""
    one = Memory(0, block_tokens, 3, draft_bytes, drafter_bytes=200)
    largest = max(one.bytes_of(most, most) for most in (told.prompt_tokens + told.max_tokens).tolist())
    return replace(one, capacity_bytes=int(largest * factor))


def table_of(class_names: tuple[str, ...], rejected: Mapping[int, str] | None = None, **columns: Any) -> DataFrame:
    """Return the table of `columns_of` as pandas has it."""
    return columns_of(class_names, rejected, **columns).frame()


def columns_of(class_names: tuple[str, ...], rejected: Mapping[int, str] | None = None, **columns: Any) -> RequestTable:
    """Return the request table of these columns, (N,) each, by the names of what was told and of what happened."""
    longest_pause_s = columns.pop("longest_pause_s")
    spent_s = columns.pop("spent_s", np.zeros((2, len(longest_pause_s))))
    moving_s = columns.pop("moving_s", np.zeros(len(longest_pause_s)))
    noted = columns.pop("noted", {})
    cancelled_s = columns.pop("cancelled_s", None)
    n = len(longest_pause_s)
    given = {name: columns.pop(name) for name in Facts.__dataclass_fields__ if name in columns}
    told = Requests(**vars(empty_rows(Facts, n)) | given, class_names=class_names)
    replica_of = columns.pop("replica_of", np.zeros(n, dtype=np.int64))
    done = replace(empty_rows(Progress, n), **columns)
    why = reasons(n, rejected or {})
    return RequestTable(told, done, longest_pause_s, spent_s, moving_s, noted, replica_of, why, cancelled_s=cancelled_s)


def table_of_run(record: Record) -> DataFrame:
    """Return the request table of a run."""
    return record.table().frame()


def no_scheduler() -> Scheduler:
    raise AssertionError("the test puts its own scheduler here")


def simulation(
    told: Requests,
    output_tokens: Sequence[int],
    scheduler: Callable[[], Scheduler] = no_scheduler,
    *,
    pool: Memory | None = None,
    truth: Hardware | None = None,
    text: AcceptanceTrace | None = None,
    **more: Any,
) -> Simulation:
    """Return a simulation with passes kept; roomy memory, ordinary hardware and text unless given."""
    true = truth or hardware()
    return Simulation(
        requests=told,
        ground_truth=GroundTruth(np.array(output_tokens, dtype=np.int64), text or acceptance_trace(len(told))),
        truth=true,
        cost_model=more.pop("cost_model", true),
        memory=pool or memory(told),
        scheduler=scheduler,
        keep_passes=more.pop("keep_passes", True),
        **more,
    )


def refusal(call: Callable[..., object], *given: Any, **more: Any) -> str:
    """Return the one line by which a call is refused."""
    with pytest.raises(SpecsimError) as caught:
        call(*given, **more)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    return said


def grown(forest: Forest, parents: Any, sure: Any, tokens: Sequence[int] | None = None) -> Forest:
    """Return `forest` with a node of confidence `sure` behind each of `parents`; ranks are 0 unless given."""
    parent, confidence = np.array(parents, dtype=np.int64), np.array(sure, dtype=np.float64)
    rank = np.zeros_like(parent) if tokens is None else np.array(tokens, dtype=np.int64)
    return grow(forest, parent, rank, confidence, confidence * forest.path_probability[parent], np.zeros_like(parent))


def drafted(ledger: Ledger, requests: Ids, nodes: int) -> Forest:
    """Return trees of `nodes` children of each root, from a draft pass that feeds all that the drafter lacks."""
    rows, roots = np.arange(len(requests)), Forest.roots(len(requests))
    lacks = ledger.known(requests) - ledger.progress.draft_cached[requests]
    work = DraftPass(requests, lacks, roots, rows, nodes)
    ledger.reserve(work)
    parents = np.repeat(rows, nodes)
    forest = grown(roots, parents, np.full(len(parents), 1 / (nodes + 1)), np.tile(np.arange(nodes), len(rows)))
    ledger.commit_draft(work, forest, 0.0)
    return forest


def ledger_and_view(told: Requests, pool: Memory | None = None) -> tuple[Ledger, LedgerView]:
    """Return the state of one replica at which all of `told` have arrived."""
    ledger = Ledger(len(told), pool or memory(told))
    view = LedgerView(ledger, hardware())
    for request in range(len(told)):
        ledger.arrive(request, told, 0.0)
    return ledger, view


GAPS_S = st.sampled_from((0.0, 0.0, 0.0, 0.001, 0.02, 0.3, 5.0))
"""Bursts and pauses: passes take about 0.001 to 0.1 s."""
LENGTHS = st.sampled_from((1, 2, 3, 5, 8, 11, 17, 24, 30))
ROW = st.tuples(GAPS_S, LENGTHS, LENGTHS, st.sampled_from((0, 0, 1, 6)), st.integers(0, 2))
"""Gap before the arrival, prompt, output, what max_tokens allows beyond it, class."""


@st.composite
def simulations(draw: st.DrawFn, most_requests: int = 40) -> Simulation:
    """Draw a simulation without a scheduler: workload, memory, hardware, drafter, text, replicas."""
    count = draw(st.integers(1, most_requests))
    rows = draw(st.lists(ROW, min_size=count, max_size=count))
    gaps, prompts, outputs, slack, kinds = (np.array(column) for column in zip(*rows, strict=True))
    told = requests(np.cumsum(gaps) - gaps[0], prompts, outputs + slack, kinds)
    truth = hardware(
        draw(st.sampled_from((0.0, 1e-6, 1e-4))),
        draw(st.sampled_from((1e-5, 1e-3))),
        draw(st.sampled_from((1e-3, 2e-2))),
    )
    lookup = draw(st.sampled_from((False, False, False, True)))
    if lookup:
        truth = truth.looking_up()
    return simulation(
        told,
        outputs,
        pool=memory(
            told,
            draw(st.sampled_from((1.0, 1.2, 1.5, 2.0, 3.0, 100.0, 0.6))),
            draw(st.sampled_from((1, 4, 16))),
            0 if lookup else 1,
        ),
        truth=truth,
        text=acceptance_trace(
            len(told),
            draw(st.sampled_from((0.1, 0.5, 0.9))),
            seed := draw(st.integers(0, 3)),
            silent=lookup,
            depths=3 if seed % 2 else 1,
        ),
        host_bytes_per_s=draw(st.sampled_from((float("inf"), 1e4))),
        cost_model=truth.slower(draw(st.sampled_from((1.0, 1.0, 0.3, 4.0)))),
        selection_token_s=draw(st.sampled_from((0.0, 1e-5))),
        replicas=draw(st.sampled_from((1, 1, 2, 3))),
    )
