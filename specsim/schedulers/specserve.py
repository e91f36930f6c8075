"""Speculation while it raises the step's throughput and the step meets the strictest TPOT objective.

Paper: SpecServe (arXiv 2025), Algorithms 1-3, Eq. 7 and 8.
Idea: before each draft pass, predict from past confidences whether it raises throughput. Run it, then correct the
prediction by its real confidences. At last drop draft tokens, the unlikeliest first, while that raises throughput.
Deviations:
- Algorithm 1 as printed appends the mean past confidence alone and starts from -1, so that one pass always runs. Here
  that confidence is multiplied by the last path probability, and drafting starts from the throughput of a step without
  drafts, as in section 7.4. Without a pass there are no new confidences, so the mean can stay too low for ever.
- Algorithm 3's nat lacks the bonus tokens of Eq. 7, and its time the drafting: both are counted here. Drafting time is
  that of the clock. Eq. 6 charges the context SL + 1 times; here it is read once.
- The paper has one TPOT objective; here the strictest of the decoding requests binds. The server's selection time is in
  no cost model, so a step may exceed the objective by it.
- The mean is over the last `history_steps` steps that drafted, and begins as `first_confidence`. Chains have at most
  `num_speculative_tokens`. The paper gives no values.
- Both models share one pool instead of two halves. When memory is short, all chains are shortened.
- The drafter reads prompts beside decodes that draft nothing, too, and the throughput of SL = 0 counts that. The first
  draft pass is charged for what decodes have emitted since their last draft, which the paper's time does not hold.
`ReleasedSpecServe` is the authors' code (cerebellumking/AdaSpec, draft_model_runner.py). Its pass times are the cost
model's and the clock's, where the release has tables; its graph sizes count the tokens of prompts beside the decodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specsim.core.passes import NOBODY
from specsim.core.protocols import View
from specsim.core.request import Bools, Floats, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape, PassShapes
from specsim.schedulers.parts.growth import grow_fitting, plain_shape
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences, at_least, probability


class StepEstimate(NamedTuple):
    """The estimated tokens and seconds of a step, which begins when `estimate_of` makes this.

    Attributes
    ----------
    start_s : the step's beginning. limit_s : seconds beyond which the throughput counts as -1.
    plain : shape of a verification without drafts. read_s : seconds of the pass in which the drafter reads its prompts.
    node_pairs : (n,) keys that a tree node of each row attends to.
    """

    view: View
    sequences: Sequences
    start_s: float
    limit_s: float
    plain: PassShape
    node_pairs: Ints
    read_s: float

    def throughput(self, forest: Forest) -> float:
        """Return expected tokens/s of verifying all of `forest` now (Eq. 7, Algorithm 3)."""
        return self._rate(*self._drafted(forest), 0.0 if forest.draft_nodes else self.read_s)

    def throughput_after(self, forest: Forest, leaves: Ints, confidence: float) -> float:
        """Return `throughput` after one more draft pass behind `leaves` whose tokens have this confidence."""
        drafted, nodes, pairs = self._drafted(forest)
        drafted += confidence * float(forest.path_probability[leaves].sum())
        pairs += float(self.node_pairs[forest.row[leaves]].sum())
        return self._rate(drafted, nodes + len(leaves), pairs, self._pass_s(forest, leaves))

    def by_kept(self, forest: Forest, ranked: Ints) -> Floats:
        """Return the tokens/s of verifying the first 0, 1, ..., N of the `ranked` drafted nodes, (N + 1,)."""
        tokens = self.sequences.decoding + np.cumsum(np.append(0.0, forest.path_probability[ranked]))
        pairs = np.cumsum(np.append(0, self.node_pairs[forest.row[ranked]]))
        shapes = PassShapes.with_nodes(self.plain, np.arange(len(ranked) + 1), pairs)
        seconds = self.view.now_s - self.start_s + self.view.cost_model.target.seconds_array(shapes)
        return np.where(seconds > self.limit_s, -1.0, tokens / seconds)

    def _drafted(self, forest: Forest) -> tuple[float, int, float]:
        """Return the expected tokens of all drafted nodes, how many nodes there are, and the keys they attend to."""
        nodes = slice(forest.rows, None)
        pairs = float(self.node_pairs[forest.row[nodes]].sum())
        return float(forest.path_probability[nodes].sum()), forest.draft_nodes, pairs

    def _rate(self, drafted: float, nodes: int, pairs: float, more_s: float) -> float:
        verify_s = self.view.cost_model.target.seconds(self.plain.with_nodes(nodes, pairs))
        seconds = self.view.now_s - self.start_s + more_s + verify_s
        return -1.0 if seconds > self.limit_s else (self.sequences.decoding + drafted) / seconds

    def _pass_s(self, forest: Forest, leaves: Ints) -> float:
        """Return the estimated seconds of a draft pass behind `leaves`; the first also feeds `sequences.catch_up`."""
        cached, draft = self.view.draft_cached[self.sequences.requests], self.view.cost_model.draft
        if leaves[0] < forest.rows:
            return draft.seconds(PassShape.of(cached, self.sequences.catch_up))
        context = int(cached[forest.row[leaves]].sum())
        return 0.0 if draft.one_pass else draft.seconds(PassShape.decode(context, len(leaves)))


def estimate_of(view: View, sequences: Sequences, limit_s: float = np.inf) -> StepEstimate:
    """Return the estimate of a step over these rows that begins now."""
    seen = view.target_cached[sequences.requests] + sequences.scheduled_tokens + 1
    prompts, ids = sequences.catch_up[sequences.decoding :], sequences.requests[sequences.decoding :]
    read_s = view.cost_model.draft.seconds(PassShape.of(view.draft_cached[ids], prompts)) if prompts.any() else 0.0
    return StepEstimate(view, sequences, view.now_s, limit_s, plain_shape(view, sequences), seen, read_s)


@dataclass
class SpecServe(Chains):
    """A speculation part: predict, execute, correct, then drop tokens that cost throughput.

    Parameters
    ----------
    num_speculative_tokens : most draft tokens of a chain.
    verifier : whether tokens are dropped before the verification; false is SpecServe-minus.
    history_steps : steps that drafted whose confidences are averaged.
    first_confidence : the mean at the beginning, with the weight of one token for each of those steps.
    """

    num_speculative_tokens: int
    verifier: bool
    history_steps: int
    first_confidence: float

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        at_least(1, history_steps=self.history_steps)
        probability(first_confidence=self.first_confidence)
        self._confidences = np.full(self.history_steps, float(self.first_confidence))
        self._drafted, self._steps = np.ones(self.history_steps), 0

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of the tokens drafted in the last `history_steps` steps that drafted."""
        return float(self._confidences.sum() / self._drafted.sum())

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield draft passes while they promise more throughput and return the tokens worth verifying."""
        objectives_s = view.tpot_slo_s[sequences.requests[: sequences.decoding]]
        estimate = estimate_of(view, sequences, float(np.fmin.reduce(objectives_s, initial=np.inf)))
        confidence = self.mean_confidence

        def worth_it(forest: Forest, leaves: Ints) -> Ints:
            predicted = estimate.throughput_after(forest, leaves, confidence)
            return leaves if predicted > estimate.throughput(forest) else NOBODY

        forest = yield from grow_fitting(view, sequences, self.num_speculative_tokens, worth_it)
        if not forest.draft_nodes:
            return forest
        self._remember(forest.probability[forest.rows :])
        return forest.subset(worth_keeping(estimate, forest)) if self.verifier else forest

    def _remember(self, confidences: Floats) -> None:
        oldest = self._steps % self.history_steps
        self._confidences[oldest], self._drafted[oldest] = confidences.sum(), len(confidences)
        self._steps += 1


def worth_keeping(estimate: StepEstimate, forest: Forest) -> Bools:
    """Return which nodes are verified, (nodes,), roots included: drops the unlikeliest ones (Algorithm 2).

    As in the paper it stops at the first token whose loss does not raise throughput. No node is likelier than its
    parent, so what is left are trees.
    """
    drafted = slice(forest.rows, None)
    ranked = forest.rows + np.lexsort((forest.depth[drafted], -forest.path_probability[drafted]))
    throughput = estimate.by_kept(forest, ranked)
    no_gain = np.flatnonzero(throughput[:-1] <= throughput[1:])
    return first_kept(forest, ranked, int(no_gain[-1]) + 1 if len(no_gain) else 0)


def first_kept(forest: Forest, ranked: Ints, count: int) -> Bools:
    """Return a mark for each node, (nodes,): the roots, and the first `count` of the `ranked` drafted nodes."""
    keep = np.zeros(len(forest), dtype=np.bool_)
    keep[: forest.rows] = True
    keep[ranked[:count]] = True
    return keep


DOUBLING_MOST = 32
"""The graph size up to which sizes double; from there on they are its multiples."""


@dataclass
class ReleasedSpecServe(Chains):
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

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        at_least(0, limit_s=0.0 if self.limit_s is None else self.limit_s)
        probability(first_confidence=self.first_confidence)
        self._sum, self._count = 0.0, 0

    @property
    def mean_confidence(self) -> float:
        """The mean of all confidences noted since the start."""
        return self._sum / self._count if self._count else self.first_confidence

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield draft passes while they promise more throughput and return the tokens to verify."""
        estimate = estimate_of(view, sequences, np.inf if self.limit_s is None else self.limit_s)
        judged, last = 0, estimate.throughput(Forest.roots(len(sequences.requests)))

        def fell(forest: Forest) -> bool:
            """Return whether the last pass, not judged yet, lowered throughput; note its confidences if not."""
            nonlocal judged, last
            if (depth := int(forest.depth[-1])) == judged:
                return False
            before, judged, last = last, depth, estimate.throughput(forest)
            if last < before:
                return True
            confidences = forest.probability[forest.depth == depth]
            self._sum, self._count = self._sum + float(confidences.sum()), self._count + len(confidences)
            return False

        def worth_it(forest: Forest, leaves: Ints) -> Ints:
            if fell(forest):
                return NOBODY
            predicted = estimate.throughput_after(forest, leaves, self.mean_confidence)
            return leaves if (predicted >= last if judged else predicted > last) else NOBODY

        forest = yield from grow_fitting(view, sequences, self.num_speculative_tokens, worth_it)
        if not forest.draft_nodes:
            return forest
        # Behind the longest chains nobody asks for another pass: the last one is judged here.
        fell(forest)
        return forest.subset(to_graph_size(estimate, forest)) if self.verifier else forest


def smaller_graph(tokens: int) -> int:
    """Return the largest graph size below `tokens`; 0 for one token."""
    if tokens > DOUBLING_MOST:
        return (tokens - 1) // DOUBLING_MOST * DOUBLING_MOST
    return 1 << (tokens - 1).bit_length() - 1 if tokens > 1 else 0


def to_graph_size(estimate: StepEstimate, forest: Forest) -> Bools:
    """Return which nodes are verified, (nodes,), roots included: what the next smaller graph holds, if that pays.

    As released, a chain is as good as its last drafted token, of equals the later row's. The worst chain is dropped to
    its first token before the next one loses any.
    """
    row, path = forest.row[forest.rows :], forest.path_probability[forest.rows :]
    last = np.ones(forest.rows)
    np.minimum.at(last, row, path)
    ranked = forest.rows + np.lexsort((forest.depth[forest.rows :], -row, -last[row]))
    throughput = estimate.by_kept(forest, ranked)
    tokens = int(estimate.plain.batched_tokens)
    kept = smaller_graph(tokens + forest.draft_nodes) - tokens
    cut = kept >= 0 and throughput[kept] >= throughput[-1]
    return first_kept(forest, ranked, kept if cut else len(ranked))
