"""SLO-customised speculative decoding.

Paper: AdaServe (EuroSys '26), Algorithm 2, Eq. 5, 7, 8, 9.
Idea: draft a candidate tree for every request, then spend one verification budget first on the nodes that requests
need to keep their TPOT objective, next on the likeliest nodes of all.
Deviations:
- c1, c2, n_max and t_spec have no values in the paper: c1 = c2 = 0 and n_max = 1.2 B / n are those of the authors'
  scripts, t_spec is what the scheduler believes the verification to take, times `time_margin`; the drafting of the
  step has already gone by when nodes are selected, so it stands in l.
- Algorithm 2 as printed overdraws the budget by one and adds a conditional probability: see `selection.select`.
- The paper does not say how prompts are read: here chunks of at most `prefill_tokens` ride on the verification
  (`prefill: mixed`), or passes of their own go first (`prefill: first`).
- n > B is not treated: no more than `max_requests` <= B are admitted.
- Where memory is short for trees, the step decodes plainly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from specsim.forest import Forest
from specsim.protocols import Step, View
from specsim.request import Bools, Floats, Ids, Ints
from specsim.schedulers.batching import Admission, decoding, prompt_chunks, seats
from specsim.schedulers.parameters import at_least, share
from specsim.schedulers.sarathi import chunk_sizes
from specsim.schedulers.selection import Cap, Order, select
from specsim.schedulers.speculation import believed_verify_s, grow_trees, trees_fit
from specsim.schedulers.tree_shape import ShapeRule
from specsim.work import Draft, Verify


@dataclass(frozen=True, slots=True)
class AdaServe:
    """Speculate, select for SLOs, select for throughput, verify.

    Parameters
    ----------
    verify_tokens : B, tokens of a verification that roots and tree nodes share.
    shape : depth and width of the candidate trees (Eq. 8, 9).
    order : who selects first. cap : A(r) to A_cap(r).
    slo_share : n_max as a multiple of B / n. time_margin : factor on the believed t_spec.
    prefill : "mixed" or "first". prefill_tokens : prompt tokens of a pass.
    max_requests : most requests that hold cache, at most B. watermark : share of the cache left free on admission.
    """

    verify_tokens: int
    shape: ShapeRule
    order: Order
    cap: Cap
    slo_share: float
    time_margin: float
    prefill: Literal["mixed", "first"]
    prefill_tokens: int
    max_requests: int
    watermark: float

    def __post_init__(self) -> None:
        at_least(1, max_requests=self.max_requests, prefill_tokens=self.prefill_tokens)
        at_least(0, slo_share=self.slo_share, time_margin=self.time_margin)
        share(watermark=self.watermark)
        if self.max_requests > self.verify_tokens:
            raise ValueError(f"max_requests={self.max_requests} exceeds verify_tokens={self.verify_tokens}")

    @property
    def widest(self) -> int:
        """The most children of one node that a draft pass is ever asked for."""
        return self.shape.widest

    def step(self, view: View) -> Step:
        """Yield d draft passes, select, and yield one verification."""
        rows = self._rows(view)
        if not len(rows.requests):
            return
        depth, width = self.shape(rows.decoding)
        if len(rows.evicted) or not trees_fit(view, *rows.passes, rows.decoding, depth * width, rows.fed):
            yield Verify(*rows.passes, Forest.roots(len(rows.requests)), rows.evicted)
            return
        if not rows.decoding and rows.fed.any():
            yield Draft(rows.requests, rows.fed, Forest.roots(len(rows.requests)))
        forest = yield from grow_trees(view, rows.requests, rows.fed, rows.decoding, depth, width)
        if forest.draft_nodes:
            forest = forest.subset(self._chosen(view, rows, forest))
        yield Verify(*rows.passes, forest)

    def _rows(self, view: View) -> _Rows:
        resident = view.resident
        decodes = decoding(view, resident)
        decoders = int(np.count_nonzero(decodes))
        sizes = chunk_sizes(view.pending(resident), decodes, decoders + self.prefill_tokens)
        keep, free_bytes = seats(view, resident, sizes)
        running = keep & (sizes > 0)
        requests, chunks = resident[running], sizes[running]
        if view.waiting and keep.all():
            admission = Admission(self.max_requests, self.watermark, drafting=True)
            left = self.prefill_tokens + decoders - int(chunks.sum())
            prompts = prompt_chunks(view, admission, left, free_bytes)
            requests = np.concatenate((requests, prompts.requests))
            chunks = np.concatenate((chunks, prompts.tokens))
        decodes = decoding(view, requests)
        if self.prefill == "first" and not decodes.all():
            requests, chunks, decodes = requests[~decodes], chunks[~decodes], decodes[~decodes]
        fed = view.draft_pending(requests)
        if not decodes.all():
            order = np.argsort(~decodes, kind="stable")
            fed = np.where(decodes, fed, np.minimum(fed, chunks))[order]
            requests, chunks = requests[order], chunks[order]
        return _Rows(requests, chunks, int(np.count_nonzero(decodes)), fed, resident[~keep])

    def _chosen(self, view: View, rows: _Rows, forest: Forest) -> Bools:
        n = rows.decoding
        tree_tokens = min(self.verify_tokens - n, forest.draft_nodes)
        step_s = self.time_margin * believed_verify_s(view, *rows.passes, tree_tokens)
        need = np.zeros(len(rows.requests))
        need[:n] = self.cap(tokens_needed(view, rows.requests[:n], step_s), int(forest.depth[-1]))
        most_nodes = int(self.slo_share * self.verify_tokens / n)
        return select(forest, need, self.order(need), most_nodes, self.verify_tokens + len(need) - n)


class _Rows(NamedTuple):
    """Rows of the coming verification, the `decoding` ones first; `fed` (n,) tokens for the drafter's cache."""

    requests: Ids
    chunks: Ints
    decoding: int
    fed: Ints
    evicted: Ids

    @property
    def passes(self) -> tuple[Ids, Ints]:
        return self.requests, self.chunks


def tokens_needed(view: View, requests: Ids, step_s: float) -> Floats:
    """Return A(r) = (l + t_spec) / t_TPOT - o for each decoding request, (n,), -inf without an objective (Eq. 5).

    l is the time since the first decoding step began, o the tokens decoded since, `step_s` what is left of this step.
    """
    first_s = view.first_decode_s[requests]
    elapsed_s = view.now_s - np.where(np.isnan(first_s), view.now_s, first_s)
    need = (elapsed_s + step_s) / view.tpot_slo_s[requests] - (view.emitted_tokens[requests] - 1)
    return np.where(np.isnan(need), -np.inf, need)
