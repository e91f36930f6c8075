"""Chains of the length that a bandit takes for the fastest at this batch size; without drafts the drafter may leave.

Paper: Nightjar (Li et al., arXiv 2512.22420), Eq. 2 to 5 and its elastic memory; the bandit is ADA-BINGREEDY.
Idea: for each batch size, time is cut into bins that keep one length 0, 1, ..., K. A bin explores with a probability
that falls from bin to bin, or takes the least seconds a token. Where length 0 is the best and cache has been short for
a while, the drafter's weights go to the host, and their bytes hold cache.
Deviations:
- Equations, blocks and probabilities are taken from a summary of version 3, not from the paper's own text.
- Batch sizes are told apart by powers of two, and are those of the running requests, prompts included.
- A block has H = 1, 2, 4, ... steps, and its bin b explores with 1 / b. That a bin has sqrt(H) steps, rounded up, and
  that a block begins with b = 1, is ours. A length that was never tried is found by exploring alone.
- Goodput is tokens a request and second, the mean of its steps. Going on after length 0 costs C_switch / length: the
  estimated seconds in which the drafter reads what it lacks, beyond those of one token each, in place of a table.
- The drafter leaves at once, since the host keeps a copy; the next pass waits while it comes back. In the paper both
  overlap with computation. It comes back when no request waits, `free_share` of the pool is free without its bytes and
  the bandit drafts, whose bins go on while it is away. The bandit does not price that.
- The weights' bytes are taken as spread over the GPUs of the target. The drafter's cache of running requests stays.
- `free_share` is the paper's best, a tenth; `persist_s`, K and the seed are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, sqrt

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape
from specsim.rng import stream_keys, uniforms
from specsim.schedulers.parts.batching import catch_up_tokens, decoding
from specsim.schedulers.parts.growth import grow_chains
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length, probability


@dataclass(slots=True)
class Bins:
    """The bins of a range of batch sizes, and what is known of each length there.

    `goodput` (K + 1,) are mean tokens a request and second, `steps` (K + 1,) how many steps those are of. `length` is
    that of the present bin, None before it is chosen; it is bin `number` of a block of `horizon` steps, and has `left`.
    """

    goodput: Floats
    steps: Ints
    length: int | None = None
    number: int = 1
    horizon: int = 1
    left: int = 1

    def update(self, length: int, goodput: float) -> None:
        """Count a step of a length."""
        self.steps[length] += 1
        self.goodput[length] += (goodput - self.goodput[length]) / self.steps[length]

    def losses(self, switch_s: float) -> Floats:
        """Return the seconds a token of each length, (K + 1,), infinite where unknown; a switch costs all but 0."""
        seconds = np.full(len(self.steps), inf)
        np.divide(1.0, self.goodput, out=seconds, where=self.steps > 0)
        seconds[1:] += switch_s / np.arange(1, len(seconds))
        return seconds

    def go_on(self) -> None:
        """Count a step of the present bin; behind its last begins the next bin, behind the last bin the next block."""
        self.left -= 1
        if self.left:
            return
        self.length, self.number = None, self.number + 1
        if self.number > ceil(self.horizon / ceil(sqrt(self.horizon))):
            self.number, self.horizon = 1, 2 * self.horizon
        self.left = ceil(sqrt(self.horizon))


@dataclass
class BinGreedyLengths(Speculation):
    """A speculation part: chains of one length for all, by batch size; the drafter leaves where it only takes memory.

    Parameters
    ----------
    num_speculative_tokens : K, the greatest length.
    seed : of the exploration.
    free_share : share of the pool below which cache is short; 0: the drafter never leaves.
    persist_s : seconds that cache is short before the drafter leaves.

    `drafter_away` says whether the drafter shall be on the host.
    """

    num_speculative_tokens: int
    seed: int
    free_share: float
    persist_s: float
    drafter_away: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed={self.seed!r} is not in [0, 2^63)")
        at_least(0, persist_s=self.persist_s)
        probability(free_share=self.free_share)
        self._bins: dict[int, Bins] = {}
        self._here, self._chosen = self.bins(0), 0
        self._gone, self._begun, self._drafted = False, False, True
        self._switch_s, self._began_s, self._short_s = 0.0, 0.0, inf

    def begin(self, requests: int) -> None:
        """Begin a run; the state is none of the requests'."""
        self._begun = True

    @property
    def drafts(self) -> bool:
        """Whether it drafts: unless the drafter is on the host, or the greatest length is 0."""
        return self.num_speculative_tokens > 0 and not self._gone

    def draft_tokens(self, requests: int) -> int:
        """Return the length of this batch size's bin; before a run the greatest."""
        return self.length(self.bins(requests)) if self._begun else self.num_speculative_tokens

    def bins(self, batch_size: int) -> Bins:
        """Return the bins of a batch size."""
        lengths = self.num_speculative_tokens + 1
        fresh = Bins(np.zeros(lengths), np.zeros(lengths, dtype=np.int64))
        return self._bins.setdefault(batch_size.bit_length(), fresh)

    def length(self, bins: Bins) -> int:
        """Return the length of the present bin, which is chosen when it is asked for first."""
        if bins.length is None:
            self._chosen += 1
            draws = 2 * self._chosen, 2 * self._chosen + 1
            chance, which = uniforms(stream_keys(self.seed, "nightjar", draws)).tolist()
            losses = bins.losses(0.0 if self._drafted else self._switch_s)
            bins.length = int(which * len(losses)) if chance * bins.number < 1 else int(np.argmin(losses))
        return bins.length

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token of the bin's length and return the chains; none if they do not all fit."""
        self._here = self.bins(len(view.running))
        return grow_chains(view, sequences, self.length(self._here))

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Learn the goodput of the step, and decide where the drafter shall be."""
        seconds, self._began_s = view.forward_s - self._began_s, view.forward_s
        n = sequences.decoding
        if n:
            here = self.bins(len(sequences.requests)) if self._gone else self._here
            length = 0 if self._gone else self.length(here)
            if bool(length) == bool(forest.draft_nodes):
                here.update(length, float(answer.tokens[:n].sum()) / n / seconds)
            here.go_on()
            self._drafted = forest.draft_nodes > 0
            self._switch_s = 0.0 if self._drafted else catching_up_s(view)
            self._place(view, here)
        self._gone = view.drafter_away

    def _place(self, view: View, here: Bins) -> None:
        """Send the drafter away, or have it come back, after a step in these bins."""
        least = self.free_share * view.capacity_bytes
        self._short_s = min(self._short_s, view.now_s) if view.free_bytes < least else inf
        if self.drafter_away:
            room = view.free_bytes - view.drafter_bytes >= least and not len(view.waiting)
            self.drafter_away = not (room and self.length(self.bins(len(view.running))))
        elif view.now_s - self._short_s >= self.persist_s and not self._drafted and view.drafter_bytes:
            self.drafter_away = int(np.argmin(here.losses(0.0))) == 0


def catching_up_s(view: View) -> float:
    """Return the estimated seconds in which the drafter reads what decodes lack in it, beyond one token each."""
    requests = view.running[decoding(view, view.running)]
    lacking = catch_up_tokens(view, requests)
    if not lacking.any():
        return 0.0
    cached, draft = view.draft_cached[requests], view.cost_model.draft
    plain = draft.seconds(PassShape.of(cached + lacking - 1, np.minimum(lacking, 1)))
    return max(draft.seconds(PassShape.of(cached, lacking)) - plain, 0.0)
