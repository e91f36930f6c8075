"""SpecServe as its authors released it, under the name of AdaSpec.

Paper: SpecServe (arXiv 2503.05096), at SoCC '25 as AdaSpec; the code is cerebellumking/AdaSpec, commit f3f2f48.
Idea: as specserve.py, but the drafting stops on a real fall of throughput, and tokens are dropped down to a size that
the server has captured as a CUDA graph.
Differences from the paper's scheduler, all of them the release's:
- The first pass runs if one token of the mean confidence beats no draft. After a pass throughput is computed with the
  real confidences. If it fell, the tokens of the pass are kept and the drafting stops; else the next pass is predicted.
- The mean is over all tokens of passes that did not lower throughput, since the start. It has no window. Before the
  first such token it is 0.6. A confidence that lowers throughput is never learnt, so the mean is too high.
- Elimination drops the unlikeliest tokens until the verified tokens are as many as the next smaller graph size holds,
  roots included. It keeps this one cut if the predicted throughput does not fall. Sizes are powers of two up to 32,
  then multiples of 32.
- The check of the objective is written and commented out: `limit_s` is null. The commented value is 40 ms.
Deviations:
- The release prices passes by tables of its own and host time once a step; here the belief does, a pass at a time, and
  the drafting time is that of the clock. Its verification reads a context once for each token: run it with
  `engine=vllm_0_6`.
- A batch that fills a graph size exactly is cut to the one below, if that pays; the facts that we have do not say.
- When memory is short, all chains are shortened.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.replica.passes import NOBODY
from specsim.replica.protocols import View
from specsim.replica.request import Bools, Ints
from specsim.replica.trees import Forest
from specsim.schedulers.parts.growth import grow_rows
from specsim.schedulers.parts.parameters import at_least, draft_length, probability
from specsim.schedulers.parts.protocols import Growing, Rows, Speculation
from specsim.schedulers.specserve import StepEstimate, estimate_of, first_kept
from specsim.schedulers.threshold import fitting_chain

DOUBLING_MOST = 32
"""The graph size up to which sizes double; from there on they are its multiples."""


@dataclass(slots=True)
class MeanConfidence:
    """The mean of all confidences noted since the start; `first` before any."""

    first: float
    _sum: float = field(default=0.0, init=False)
    _count: int = field(default=0, init=False)

    @property
    def value(self) -> float:
        """The mean."""
        return self._sum / self._count if self._count else self.first

    def note(self, forest: Forest, depth: int) -> None:
        """Add the confidences of the nodes at `depth`."""
        confidences = forest.probability[forest.depth == depth]
        self._sum += float(confidences.sum())
        self._count += len(confidences)


@dataclass(slots=True)
class StepDrafting:
    """One step's decisions between draft passes: `going_on` of `grow`, which also notes what may be learnt."""

    estimate: StepEstimate
    mean: MeanConfidence
    last: float
    depth: int = 0

    def __call__(self, forest: Forest, leaves: Ints) -> Ints:
        """Return the leaves of the next pass; none when throughput fell or is predicted to."""
        if self.fell(forest):
            return NOBODY
        predicted = self.estimate.throughput_after(forest, leaves, self.mean.value)
        rises = predicted >= self.last if self.depth else predicted > self.last
        return leaves if rises else NOBODY

    def fell(self, forest: Forest) -> bool:
        """Return whether the last pass lowered throughput; note its confidences if not. A pass is judged once."""
        depth = int(forest.depth[-1])
        if depth == self.depth:
            return False
        before, self.depth, self.last = self.last, depth, self.estimate.throughput(forest)
        if self.last < before:
            return True
        self.mean.note(forest, depth)
        return False


@dataclass(slots=True)
class ReleasedSpecServe(Speculation):
    """A speculation part: predict, execute, stop on a fall, then drop tokens down to a graph size.

    Parameters
    ----------
    num_speculative_tokens : most draft tokens of a chain.
    verifier : whether tokens are dropped before the verification; false is the release's step-level method.
    first_confidence : the mean before any token has been drafted.
    limit_s : seconds of a step beyond which its throughput counts as -1; null: none.
    """

    num_speculative_tokens: int
    verifier: bool
    first_confidence: float
    limit_s: float | None
    mean: MeanConfidence = field(init=False, repr=False)

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        at_least(0, limit_s=0.0 if self.limit_s is None else self.limit_s)
        probability(first_confidence=self.first_confidence)
        self.mean = MeanConfidence(self.first_confidence)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless the longest chain is 0 tokens."""
        return self.num_speculative_tokens > 0

    def draft_tokens(self, requests: int) -> int:
        """Return the longest chain."""
        return self.num_speculative_tokens

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield draft passes while they promise more throughput and return the tokens to verify."""
        estimate = estimate_of(view, rows, np.inf if self.limit_s is None else self.limit_s)
        drafting = StepDrafting(estimate, self.mean, estimate.throughput(Forest.roots(len(rows.requests))))
        forest = yield from grow_rows(view, rows, fitting_chain(view, rows, self.num_speculative_tokens), drafting)
        if not forest.draft_nodes:
            return forest
        # Behind the longest chains nobody asks for another pass: the last one is judged here.
        drafting.fell(forest)
        return forest.subset(to_graph_size(estimate, forest)) if self.verifier else forest


def smaller_graph(tokens: int) -> int:
    """Return the largest graph size below `tokens`; 0 for one token."""
    if tokens > DOUBLING_MOST:
        return (tokens - 1) // DOUBLING_MOST * DOUBLING_MOST
    return 1 << (tokens - 1).bit_length() - 1 if tokens > 1 else 0


def to_graph_size(estimate: StepEstimate, forest: Forest) -> Bools:
    """Return which nodes are verified, (nodes,), roots included: what the next smaller graph holds, if that pays."""
    ranked, throughput = estimate.by_kept(forest)
    kept = smaller_graph(len(forest)) - forest.rows
    cut = kept >= 0 and throughput[kept] >= throughput[-1]
    return first_kept(forest, ranked, kept if cut else len(ranked))
