"""Admission by what can be met, and batches as long as the objectives allow, by a dynamic programme over tokens.

Paper: SLOs-Serve (Chen et al., arXiv 2504.08784), its scheduler: multi-SLO dynamic programming, batch formation with
SLO-adaptive speculation, soft admission.
Idea: requests are of tiers, one a TPOT objective. In a batch of T seconds a request of tier l has to emit T / TPOT_l
tokens, by a chain as long as it takes to expect so many. Prompts get the rest of the tokens that T has time for, and T
is where that rest is most a second, of lengths that end before an accepted prompt is due. A programme over the prompts
in the order of their deadlines finds the most requests whose prompts all end in time, beside decodes that all keep
their objectives. Other requests get leftovers.
Deviations:
- Out of scope: the routing of declined requests to other replicas and the stages of one request (tools, thinking).
- The paper decides with output lengths known. Here an accepted request decodes without end. A request is decided on
  once, at most `MOST_NEW` of them a step. Requests without any objective are never accepted.
- At most `MOST_TIERS` objectives at once are tiers. Each of the others counts as the next stricter one.
- Memory is no state of the programme: an accepted request that does not fit waits, and others get its tokens.
  Requests that were not accepted yield their cache first, then accepted ones, the youngest first, to be recomputed.
- Pass times are the cost model's times `time_margin`: without one many requests end just behind their objectives. The
  mean context of the moment holds for all of the future, and counts as so many tokens of each decode. The programme
  counts a decode from the deadline of its prompt on, though a prompt that ends sooner decodes sooner.
- The paper has one acceptance rate a token, measured before; here one a draft position, from all verifications so far.
- A tier that needs less than a token a batch skips batches (the paper's rule without speculation) and drafts nothing.
  A decode is due if the batch after this one would end behind its next token's deadline. Due decodes are first in a
  batch, then accepted prompts, then other accepted decodes, then requests that were not accepted.
- A step whose chains are all empty feeds the drafter nothing; later steps feed that, and no plan prices it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from specsim.core.passes import Emitted, TargetPass
from specsim.core.protocols import Step, View
from specsim.core.request import Bools, Floats, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape, PassShapes
from specsim.schedulers.parts.batching import decoding
from specsim.schedulers.parts.growth import fitting_shape, grow, max_depths
from specsim.schedulers.parts.protocols import Sequences, at_least, draft_length, evicting, probability, sequences_of
from specsim.schedulers.parts.queues import fitting_head, live
from specsim.schedulers.parts.tree_shape import TreeShape

MOST_NEW, MOST_TIERS, SIZES = 12, 6, 48
"""Requests and tiers among which one programme chooses; sizes of a pass that are priced, and interpolated between."""
FIRST_ACCEPTANCE, NEVER_S, TOO_MANY = 0.7, 1e4, 1e9
"""Supposed rate of a draft position at first; a deadline that never comes; tokens where no chain meets an objective."""


class PlannedBatches(NamedTuple):
    """Batches that a plan may repeat.

    Attributes
    ----------
    seconds : (C,) of each batch.
    depth, demand : (L, C) draft tokens of a decode of each tier; its tokens, context included, in a mean batch.
    supply : (k + 1, C) tokens that the batch has time for behind 0, 1, ..., k draft passes.
    cached_token : tokens whose seconds are those of reading a cached one.
    """

    seconds: Floats
    depth: Ints
    demand: Floats
    supply: Floats
    cached_token: float

    def prompt_rate(self, counts: Ints) -> Floats:
        """Return the prompt tokens a second beside `counts` (S, L) decodes, (S, C); negative where these do not fit."""
        passes = ((counts > 0)[:, :, None] * self.depth).max(axis=1)
        supply = self.supply[passes, np.arange(len(self.seconds))]
        rate: Floats = (supply - counts @ self.demand) / self.seconds
        return rate


def tiers_of(objective_s: Floats) -> tuple[Floats, Ints]:
    """Return the TPOT objective of each tier, ascending, (L,), and the tier of each request, (n,)."""
    tpot_s, tier = np.unique(objective_s, return_inverse=True)
    if len(tpot_s) <= MOST_TIERS:
        return tpot_s, tier
    tiers = np.linspace(0, len(tpot_s) - 1, MOST_TIERS).astype(np.int64)
    return tpot_s[tiers], np.searchsorted(tiers, tier, side="right") - 1


def batches_of(
    view: View, tpot_s: Floats, emitted: Floats, decode: PassShape, sizes: Ints, margin: float, soonest_s: float
) -> PlannedBatches:
    """Return the batches at whose length some tier needs a longer chain, that of `soonest_s` and the largest.

    Parameters
    ----------
    tpot_s : (L,) objective of each tier, inf for none.
    emitted : (k + 1,) expected tokens of a verification of a chain of 0, 1, ..., k tokens.
    decode : what a pass of all decodes reads, of one at least.
    sizes : (SIZES,) at most, tokens of a pass that are priced, ascending.
    margin : factor on the estimated seconds. soonest_s : seconds until the first prompt is due, inf for none.
    """
    n, most, target, draft = decode.requests, len(emitted) - 1, view.cost_model.target, view.cost_model.draft
    context = decode.context_tokens / n
    chain = np.arange(most + 1)[:, None]
    shapes = PassShapes(0, sizes, sizes * (context / 2 + 1), np.minimum(sizes, n), n, 0, np.maximum(sizes - n, 0))
    drafted, read = np.minimum(sizes, n + (chain > 0)), np.maximum(sizes - n * (1 + chain), 0)
    verify_s = target.seconds_array(shapes._replace(logit_tokens=drafted, prefill_tokens=read))
    # The first draft pass feeds what the target is fed, if the drafter has a cache.
    first_s = draft.seconds_array(shapes) if draft.cached else draft.seconds(decode)
    later_s = 0.0 if draft.one_pass else draft.seconds(decode)
    step_s = margin * (verify_s + np.where(chain > 0, first_s + (chain - 1) * later_s, 0.0))
    asked_s = np.append(np.outer(tpot_s, emitted), soonest_s)
    seconds = np.append(np.minimum(asked_s[np.isfinite(asked_s)], step_s[-1, -1]), step_s[0, -1])
    supply = np.array([np.interp(seconds, np.maximum.accumulate(s), sizes, left=0) for s in step_s])
    rising_s = (step_s[0, -1] - step_s[0, 0]) / margin
    reading_s = target.seconds(decode) - target.seconds(PassShape.decode(0, n))
    cached_token = reading_s / (n * context) * (sizes[-1] - sizes[0]) / rising_s if rising_s * context > 0 else 0.0
    wanted = seconds / tpot_s[:, None] * (1 - 1e-9)
    depth = np.searchsorted(emitted, wanted)
    demand = np.minimum(wanted, 1) * (1 + np.where(wanted <= 1, 0, depth) + cached_token * context)
    return PlannedBatches(
        seconds, np.minimum(depth, most), np.where(depth > most, TOO_MANY, demand), supply, cached_token
    )


def accepted_prompts(
    batches: PlannedBatches, counts: Ints, due_s: Floats, tokens: Ints, tier: Ints, new: Bools
) -> Bools:
    """Return which prompts are accepted, (m,): those that are not new, and as many new ones as possible.

    The state is how many new requests of each tier are accepted; its value the prompt tokens that could still be read
    by the deadline. Between deadlines it grows by the rate beside the decodes so far.

    Parameters
    ----------
    counts : (L,) decodes of each tier. due_s : (m,) seconds from now to each deadline, ascending.
    tokens, tier, new : (m,) of each prompt; `new` ones may be declined.
    """
    shape = np.bincount(tier[new], minlength=len(counts)) + 1
    extra = np.indices(tuple(shape)).reshape(len(shape), -1).T
    stride = [prod(shape[each + 1 :].tolist()) for each in range(len(shape))]
    left, states = np.full(len(extra), -np.inf), np.arange(len(extra))
    left[0], now_s = 0.0, 0.0
    counts, choices, accepted = counts.copy(), dict[int, Bools](), ~new
    for place, (then_s, size, of) in enumerate(zip(due_s.tolist(), tokens.tolist(), tier.tolist(), strict=True)):
        if then_s > now_s:
            rate = batches.prompt_rate(counts + extra).max(axis=1)
            left[1:][rate[1:] < 0] = -np.inf
            left += np.maximum(rate, 0) * (then_s - now_s)
            now_s = then_s
        if new[place]:
            taken = np.where(extra[:, of] > 0, left[states - stride[of]] - size, -np.inf)
            taken[taken < 0] = -np.inf
            choices[place] = taken > left
            left = np.maximum(left, taken)
        else:
            left -= size
            # A prompt that is late whatever is chosen forbids only what makes it later.
            left[left < min(0.0, left[0])] = -np.inf
            counts[of] += 1
    left[1:][batches.prompt_rate(counts + extra).max(axis=1)[1:] < 0] = -np.inf
    state = int(np.lexsort((left, np.where(left > -np.inf, extra.sum(axis=1), -1)))[-1])
    for place in reversed(choices):
        if choices[place][state]:
            accepted[place], state = True, state - stride[tier[place]]
    return accepted


def shared_out(tokens: float, most: int, cost: Floats, in_turn: Ints, decodes: Bools, pending: Ints) -> Ints:
    """Return what of `tokens` each request gets `in_turn`, (n,), a decode all or nothing.

    The first one runs in any case, beyond `tokens`, if a pass of at most `most` has room for it or none else runs.
    `cost` (n,) is what each takes, `pending` (n,) what it lacks; `in_turn` (n,) are their places, the next one first.
    """
    room = tokens - np.cumsum(cost[in_turn])[np.argsort(in_turn)] + cost
    sizes: Ints = np.where(decodes, room >= cost, np.clip(room, 0, pending)).astype(np.int64)
    if tokens + (cost[0] if decodes[0] else 1) <= most or not sizes.any():
        sizes[0] = max(sizes[0], 1)
    return sizes


@dataclass
class SlosServe:
    """SLOs-Serve's scheduler on one server.

    Parameters
    ----------
    max_num_seqs : most requests of a batch. max_num_batched_tokens : most tokens of a pass, draft tokens included.
    watermark : share of the cache left free on admission. num_speculative_tokens : longest chain; 0 never drafts.
    time_margin : factor on the estimated seconds of a step.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    watermark: float
    num_speculative_tokens: int
    time_margin: float

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, max_num_batched_tokens=self.max_num_batched_tokens)
        probability(watermark=self.watermark)
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        if self.time_margin <= 0:
            raise ValueError(f"time_margin={self.time_margin!r} is not above 0")
        self._verified = np.zeros((2, self.num_speculative_tokens))
        self._sizes = np.unique(np.geomspace(1, self.max_num_batched_tokens, SIZES).astype(np.int64))

    @property
    def drafts(self) -> bool:
        """Whether it ever drafts."""
        return self.num_speculative_tokens > 0

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self._decided, self._accepted = np.zeros((2, requests), dtype=np.bool_)
        self._chain = np.zeros(requests, dtype=np.int64)

    def noted(self, requests: int) -> dict[str, Floats]:
        """Return whether each request was accepted, (requests,); see `Noting`."""
        return {"accepted": self._accepted.astype(np.float64)}

    def step(self, view: View) -> Step:
        """Yield the drafter's passes and one verification."""
        sequences = self._sequences(view, *self._plan(view))
        forest, evicted = Forest.roots(len(sequences.requests)), sequences.evicted
        max_depth = max_depths(view, sequences.requests, sequences.decoding)
        max_depth = np.minimum(max_depth, self._chain[sequences.requests])
        longest = fitting_shape(view, sequences, TreeShape(int(max_depth.max()), 1)).depth
        if longest:
            growing = grow(sequences.requests, sequences.catch_up, np.minimum(max_depth, longest), (1,) * longest)
            forest, evicted = yield from evicting(growing, evicted, most_tokens=self.max_num_batched_tokens)
        answer = yield TargetPass(sequences.requests, sequences.scheduled_tokens, forest, evicted)
        self._note(forest, answer)

    def _plan(self, view: View) -> tuple[float, float, float]:
        """Decide on new requests and chains; return seconds, tokens and `cached_token` of the best batch."""
        ids = live(view)
        new = ~self._decided[ids]
        new &= np.cumsum(new) <= MOST_NEW
        # `fmin` leaves out NaN: no objective is one that never ends.
        objective_s, due_s = np.fmin(view.tpot_slo_s[ids], np.inf), view.arrival_s[ids] + view.ttft_slo_s[ids]
        tpot_s, tier = tiers_of(objective_s)
        right, tried = self._verified[:, : view.cost_model.draft.max_depth]
        rates = (right + FIRST_ACCEPTANCE) / (tried + 1)
        emitted = 1 + np.append(0.0, np.cumsum(np.cumprod(rates)))
        decodes, kept, left_s = decoding(view, ids), self._accepted[ids], due_s - view.now_s
        unread = ~decodes & (left_s > 0)
        soonest_s = np.min(left_s, initial=np.inf, where=unread & (kept | new))
        counts = np.bincount(tier[kept & decodes], minlength=len(tpot_s))
        running, context = max(int(counts.sum()), 1), float((view.target_cached[ids] + view.pending(ids)).mean())
        decode = PassShape.decode(running * context, running)
        batches = batches_of(view, tpot_s, emitted, decode, self._sizes, self.time_margin, soonest_s)
        if new.any():
            self._decided[ids[new]] = True
            fresh = new & ~(np.isinf(objective_s) & np.isnan(due_s))
            those = np.flatnonzero(fresh | (kept & ~decodes))
            those = those[np.argsort(due_s[those], kind="stable")]
            # A request whose prompt was read elsewhere has only its decodes to be planned.
            tokens = np.where(decodes, 0, view.pending(ids))[those]
            within_s = np.clip(np.fmin(left_s[those], NEVER_S), 0, None)
            taken = accepted_prompts(batches, counts, within_s, tokens, tier[those], fresh[those])
            self._accepted[ids[those[taken]]] = True
            counts = np.bincount(tier[self._accepted[ids] & decodes], minlength=len(tpot_s))
        rate = batches.prompt_rate(counts[None])[0]
        soonest_s = np.min(left_s, initial=np.inf, where=unread & self._accepted[ids])
        in_time = (rate > 0) & (batches.seconds <= soonest_s)
        best = int(np.argmax(np.where(in_time, rate, -np.inf) if in_time.any() else rate))
        depth = batches.depth[:, best]
        self._chain[ids] = depth[tier] * self._accepted[ids]
        supply = batches.supply[(depth * (counts > 0)).max(), best]
        return batches.seconds[best], supply, batches.cached_token

    def _sequences(self, view: View, seconds: float, tokens: float, cached_token: float) -> Sequences:
        """Return the rows of the batch, at least one; the youngest that were not accepted yield their cache first."""
        ids = live(view)
        order = ids[np.lexsort((ids, view.arrival_s[ids], ~self._accepted[ids]))]
        head = order[: self.max_num_seqs]
        decodes, kept, pending = decoding(view, head), self._accepted[head], view.pending(head)
        cost = np.where(decodes, 1 + self._chain[head] + cached_token * view.target_cached[head], pending)
        first_s = view.first_token_s[head]
        next_s = first_s + view.emitted_tokens[head] * view.tpot_slo_s[head]
        # A first token that another replica computed is sent when the request is admitted.
        sent = decodes & ~np.isnan(first_s)
        due_s = np.fmin(np.where(sent, next_s, view.arrival_s[head] + view.ttft_slo_s[head]), np.inf)
        late = due_s < view.now_s + 2 * seconds
        turn = np.select((kept & decodes & late, kept & ~decodes, kept, decodes), (0, 1, 2, 3), 4)
        most = self.max_num_batched_tokens
        tokens, in_turn = min(max(tokens, cost[turn == 0].sum()), most), np.lexsort((due_s, turn))
        sizes = shared_out(tokens, most, cost, in_turn, decodes, pending)
        count, evicted = fitting_head(view, order, sizes, decodes, self.drafts, self.watermark)
        while count < len(sizes):  # The tokens of those that do not fit are for the others.
            in_turn, decodes = in_turn[in_turn < count], decodes[:count]
            sizes = shared_out(tokens, most, cost[:count], in_turn, decodes, pending[:count])
            count, evicted = fitting_head(view, order, sizes, decodes, self.drafts, self.watermark)
        run = np.flatnonzero(sizes)
        return sequences_of(view, head[run], sizes[run], evicted)

    def _note(self, forest: Forest, answer: Emitted) -> None:
        """Add, by draft position, how many tokens were verified behind right ones, and how many were right."""
        place = np.arange(self.num_speculative_tokens)
        self._verified[0] += (answer.matched[:, None] > place).sum(axis=0)
        self._verified[1] += (np.minimum(forest.tree_tokens(), answer.matched + 1)[:, None] > place).sum(axis=0)
