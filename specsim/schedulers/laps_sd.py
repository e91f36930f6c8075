"""Least-attained or perceived service (LAPS-SD), and its baseline by predicted lengths alone (LP-SJF).

Paper: LAPS-SD (Semi-Clairvoyant Scheduling of Speculative Decoding Requests), Algorithm 1, sections 4.2, 4.3, Eq. 6.
Idea: while a request's acceptance rate is unsteady, it moves down queues by the service it has attained. Once the rate
is steady, the request is perceptible: its time follows from a predicted output length, and the shortest goes first.
Deviations:
- M, S_1, gamma, delta and n have no values in the paper; ours are in the YAML. The length predictor is the true length
  with a stated error, hence by an oracle; the paper's is a fine-tuned model.
- The limits S_j = M^(j-1) S_1 hang on their highest, S_(K-1) = `top_limit_s`, so more queues divide the same span. The
  paper does not say what K leaves fixed. With a fixed S_1 more queues would only add limits that no request reaches,
  and latency would not rise with K, as it does in its Fig. 6.
- The paper does not say whether Eq. 6 is total or remaining time: `estimate`. Its text before Eq. 6 swaps T_SSM and
  T_LLM; the equation is right.
- A request that becomes perceptible moves to the queue whose limits hold its Eq. 6 time, and gives up its slot. A
  perceptible request that gets a slot is not preempted.
- n is a request's own mean: drafted tokens a round in n A, draft passes a round in n T_SSM. For chains both are equal;
  trees may use it too.
- Demotion is by the limit S_j, since S^down has no formula. Service is the seconds of every forward pass of a request,
  prompts included. Recomputing a dropped cache is service, moving a cache is not. In a batch each request attains the
  whole step.
- A_i is settled once. Rounds without drafts do not count for it, nor in Eq. 6. So times are perceived too short if a
  lookup often proposes nothing.
- In a queue the perceptible requests go first, shortest first; then those with a slot, then the earliest.
- Switching is free while memory lasts (`keep`), or costs recomputation (`recompute`), or moves the cache to the host
  and back (`transfer`, the paper's). The paper does not treat memory: see `queues`. LP-SJF preempts only for memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from specsim.core.passes import NOBODY, Emitted
from specsim.core.protocols import Oracle, UsesOracle, View
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShapes
from specsim.schedulers.parts.protocols import Batching, OraclePart, Sequences, at_least, draft_length
from specsim.schedulers.parts.queues import BatchSlots, live, nearest, ranked, within_reach
from specsim.schedulers.perception import AcceptanceMonitor, LengthPredictor


@dataclass
class LapsQueues:
    """A batching part: LAPS-SD's queues.

    Parameters
    ----------
    batch_slots : batch slots (1 in the paper), prompts, preemption and its cost.
    acceptance : gamma (`window`) and delta (`spread`). lengths : the predictor and its error.
    queues : K. top_limit_s : S_(K-1), the highest limit, seconds. limit_ratio : M, at least 1.
    estimate : Eq. 6 of the rest of a request ("remaining") or of the whole request ("total").
    """

    batch_slots: BatchSlots
    acceptance: AcceptanceMonitor
    lengths: LengthPredictor
    queues: int
    top_limit_s: float
    limit_ratio: float
    estimate: Literal["remaining", "total"]

    def __post_init__(self) -> None:
        at_least(1, queues=self.queues, limit_ratio=self.limit_ratio)
        at_least(0, top_limit_s=self.top_limit_s)
        self._limits_s = self.top_limit_s * self.limit_ratio ** -np.arange(self.queues - 2, -1, -1, dtype=np.float64)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self.acceptance.begin(requests)
        self.attained_s, self._perceived = np.zeros(requests), np.full((3, requests), np.nan)
        self._in_slot, self._settled = self._marked(NOBODY), self._marked(NOBODY)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the first requests in order; a perceptible request keeps its slot."""
        ids = live(view)
        self._perceive(view, ids)
        fresh = (self.attained_s[ids] == 0) & np.isnan(self.acceptance.rate[ids])
        near = within_reach(ids, fresh, self.batch_slots.max_num_seqs)
        slotted = self.batch_slots.assign(view, self.order(view, near), drafting)
        steady = ~np.isnan(self.acceptance.rate[slotted.requests])
        self._in_slot, self._settled = self._marked(slotted.requests), self._marked(slotted.requests[steady])
        return self.batch_slots.running(view, slotted)

    def _perceive(self, view: View, ids: Ids) -> None:
        """Note of those that have become perceptible the rounds and tokens it took, and their estimated service."""
        new = ids[~np.isnan(self.acceptance.rate[ids]) & np.isnan(self._perceived[0, ids])]
        if len(new):
            spent_s = self.attained_s[new] if self.estimate == "remaining" else 0.0
            estimated_s = spent_s + self.service_s(view, new)
            self._perceived[:, new] = self.acceptance.totals[0, new], view.emitted_tokens[new], estimated_s

    def noted(self, requests: int) -> Mapping[str, Floats]:
        """Return what was estimated of each request, (requests,), and its service in seconds; see docs/metrics.md."""
        rounds, tokens, estimated_s = self._perceived
        service_s = np.where(self.attained_s > 0, self.attained_s, np.nan)
        return {
            **self.lengths.noted(requests),
            "perception_rounds": rounds,
            "perception_tokens": tokens,
            "estimated_service_s": estimated_s,
            "service_s": service_s,
            "estimate_error": np.abs(estimated_s / service_s - 1),
        }

    def order(self, view: View, ids: Ids) -> Ids:
        """Return `ids` (n,) in the order of Algorithm 1: those keeping a slot, then by queue, perceptible, shortest."""
        unsteady = np.isnan(self.acceptance.rate[ids])
        place, service_s = view.arrival_s[ids], self.attained_s[ids]
        if not unsteady.all():
            place[~unsteady] = service_s[~unsteady] = self.service_s(view, ids[~unsteady])
        paused = unsteady & ~self._in_slot[ids]
        return ids[np.lexsort((ids, place, paused, unsteady, self.level(service_s), ~self._settled[ids]))]

    def level(self, service_s: Floats) -> Ints:
        """Return the first queue whose limit holds this service, attained or perceived, (n,), from 0."""
        return np.searchsorted(self._limits_s, service_s, side="left")

    def _marked(self, ids: Ids) -> Bools:
        marks = np.zeros(len(self.attained_s), dtype=np.bool_)
        marks[ids] = True
        return marks

    def service_s(self, view: View, ids: Ids) -> Floats:
        """Return the estimated seconds (Eq. 6) of perceptible requests alone, (n,), at least a token's."""
        rounds, drafted, passes, _ = self.acceptance.totals[:, ids]
        nodes, depth = drafted / rounds, passes / rounds
        left = self.lengths.tokens(ids) - (view.emitted_tokens[ids] if self.estimate == "remaining" else 0)
        return eq_6(np.maximum(left, 1), nodes, self.acceptance.rate[ids], round_s(view, ids, nodes, depth))

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted, service_s: float) -> None:
        """Charge the step's passes to each request that ran in it, and note the accepted tokens."""
        self.attained_s[sequences.requests] += service_s
        if forest.draft_nodes:
            self.acceptance.on_verified(sequences.requests, forest, answer.accepted)

    def use_oracle(self, oracle: Oracle) -> None:
        """Take the true output lengths for the predictor, and what the acceptance monitor is told, if anything."""
        for part in (self.lengths, self.acceptance):
            if isinstance(part, UsesOracle):
                part.use_oracle(oracle)


def round_s(view: View, ids: Ids, nodes: Floats, depth: Floats) -> Floats:
    """Return the estimated seconds of a round of each request alone, (n,), from its `nodes` and draft passes (n,)."""
    context = view.prompt_tokens[ids] + view.emitted_tokens[ids]
    if view.cost_model.draft.one_pass:
        depth = np.minimum(depth, 1.0)
    draft_s = view.cost_model.draft.seconds_array(PassShapes.decode(context))
    tree = PassShapes(context, nodes + 1, (nodes + 1) * (context + 1), nodes + 1, 1, nodes * context)
    seconds: Floats = depth * draft_s + view.cost_model.target.seconds_array(tree)
    return seconds


def eq_6(length: Floats, drafted: Floats, rate: Floats, round_s: Floats) -> Floats:
    """Return L / (n A + 1) rounds of n T_SSM + T_LLM seconds each, (n,) (LAPS-SD Eq. 6)."""
    return length / (drafted * rate + 1) * round_s


@dataclass(frozen=True, slots=True)
class ShortestPredicted(Batching):
    """A batching part, LP-SJF: running requests stay, then the shortest predicted output first."""

    batch_slots: BatchSlots
    lengths: LengthPredictor

    def use_oracle(self, oracle: Oracle) -> None:
        """Take the true output lengths for the predictor."""
        self.lengths.use_oracle(oracle)

    def noted(self, requests: int) -> Mapping[str, Floats]:
        """Return the predicted lengths, (requests,); see `Noting`."""
        return self.lengths.noted(requests)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return running requests in order of admission, and the shortest of the waiting ones."""
        ids = live(view)
        inside = len(view.running)
        waiting = ids[inside:]
        tokens = self.lengths.tokens(waiting)
        near = np.sort(nearest((tokens, np.arange(len(waiting))), self.batch_slots.max_num_seqs))
        shortest = waiting[near][np.argsort(tokens[near], kind="stable")]
        return self.batch_slots.sequences(view, np.concatenate((ids[:inside], shortest)), drafting)


@dataclass(slots=True)
class ToldAcceptance(OraclePart, AcceptanceMonitor):
    """Know each request's mean acceptance rate from the start, for chains of `num_speculative_tokens`, at least 1.

    The acceptance of single positions is not known. `totals` begin with a round that was not run.
    """

    window: int = field(init=False, default=1)
    spread: float = field(init=False, default=0.0)
    num_speculative_tokens: int

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is another class than the one that it was defined as.
        AcceptanceMonitor.__post_init__(self)
        draft_length(1, num_speculative_tokens=self.num_speculative_tokens)

    def begin(self, requests: int) -> None:
        """Allocate for N requests, all of which are perceptible; see `AcceptanceMonitor.begin`."""
        AcceptanceMonitor.begin(self, requests)
        most = self.num_speculative_tokens
        self.totals[:] = np.array([1.0, most, most, 0.0])[:, None]
        right = self.oracle.agreement(np.arange(requests))
        self.rate[:] = (right[:, None] ** np.arange(1, most + 1)).mean(axis=1)


@dataclass
class ShortestRemaining(OraclePart, Batching):
    """A batching part, SRPT: the shortest true rest first, for chains of `num_speculative_tokens`, at least 1."""

    batch_slots: BatchSlots
    num_speculative_tokens: int

    def __post_init__(self) -> None:
        draft_length(1, num_speculative_tokens=self.num_speculative_tokens)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self._rounds, self._at = np.full((2, requests), -1.0)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the requests whose rest is shortest."""
        ids = live(view)
        keys = self.rest_s(view, ids), np.arange(len(ids))
        order = ranked(view, ids, keys, self.batch_slots.max_num_seqs)
        return self.batch_slots.sequences(view, order, drafting)

    def rest_s(self, view: View, ids: Ids) -> Floats:
        """Return the seconds that each request still needs alone on the server, its prompt included, (n,)."""
        most = np.full(len(ids), float(self.num_speculative_tokens))
        moved = ids[self._at[ids] != view.emitted_tokens[ids]]
        if len(moved):
            self._rounds[moved] = self.oracle.rounds_left(moved, self.num_speculative_tokens)
            self._at[moved] = view.emitted_tokens[moved]
        unread = np.where(view.emitted_tokens[ids] > 0, 0, view.pending(ids))
        prompt_s = PassShapes.each(view.target_cached[ids], unread).seconds(view.cost_model.target)
        rest_s: Floats = self._rounds[ids] * round_s(view, ids, most, most) + prompt_s
        return rest_s
