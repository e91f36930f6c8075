"""Drafters that serve: a draft model, which feeds its cache and extends trees, and prompt lookup, a chain a search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from profiler.acceptance.drafters import longest_match
from profiler.attention.packing import Bools, Ints
from profiler.backend.known import Known
from profiler.backend.layout import NO_TOKENS, LaidOut, LaidRow, fill, laid_out, passed
from profiler.backend.rows import CachedSequences
from profiler.backend.stopwatch import DRAFT, Stopwatch
from profiler.passes.forward import PackedForward
from specsim.core.passes import DraftPass
from specsim.core.protocols import View
from specsim.core.request import Floats
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.pass_shape import PassShape

Code = tuple[int, int]
"""Name of a node through a step, whatever a scheduler prunes: its slot and its token."""


class Proposed(NamedTuple):
    """Proposals behind each leaf, (m, width): token ids, and their probabilities in descending order."""

    token: Ints
    probability: Floats


class Extension(NamedTuple):
    """A forward pass of a `DraftPass`.

    Attributes
    ----------
    forest, leaves, width : as in the pass. tokens : (nodes,) token id of each node, of roots without meaning.
    feeds : whether the rows feed the chunks of `work`; only the first of its passes does.
    shape : what the pass is priced by.
    """

    work: DraftPass
    forest: Forest
    leaves: Ints
    tokens: Ints
    feeds: bool
    shape: PassShape


class _Tree(NamedTuple):
    """The nodes of one request whose keys the draft's cache holds, in the order of their places."""

    places: dict[Code, int]
    parents: list[int]


class ModelDrafter:
    """A draft model over a cache of its own.

    A ledger takes it that a leaf which was accepted without ever having been extended is cached. Its key is not: it is
    fed with the next chunk, and `unpriced_tokens` counts it. So are roots whose logits are asked for again.

    Parameters
    ----------
    forward : the model. rows : what requests hold of its cache. known : the text. view : the replica's ledger.
    vocabulary : token ids that may be proposed.
    """

    def __init__(
        self,
        forward: PackedForward,
        rows: CachedSequences,
        known: Known,
        view: View,
        stopwatch: Stopwatch,
        vocabulary: int,
    ) -> None:
        self.rows: CachedSequences = rows
        self.unpriced_tokens = 0
        self._forward, self._known, self._view = forward, known, view
        self._stopwatch, self._vocabulary = stopwatch, vocabulary
        self._trees: dict[int, _Tree] = {}

    def extend(self, pass_: Extension) -> tuple[Proposed, float]:
        """Run one pass; return what it proposes behind its leaves, and its seconds.

        Raises
        ------
        SpecsimError
            When more tokens are asked for behind a leaf than the vocabulary has.
        """
        width = pass_.work.width if len(pass_.leaves) else 0
        if width > self._vocabulary:
            raise SpecsimError(f"tree width {width} exceeds the vocabulary of {self._vocabulary} tokens")
        rows, leaves = self._rows(pass_)
        laid = laid_out(rows)
        run = self._stopwatch.untimed(lambda: passed(self._forward, self.rows, rows, laid))
        wanted = _logits_of(laid, leaves)

        def proposed() -> Proposed:
            logits = run()
            if not width:
                return Proposed(np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0)))
            return likeliest_tokens(logits[torch.from_numpy(wanted).to(logits.device)], width, self._vocabulary)

        answer, seconds = self._stopwatch.timed(DRAFT, pass_.shape, proposed)
        self._book(pass_, rows)
        return answer, seconds

    def _rows(self, pass_: Extension) -> tuple[list[LaidRow], list[tuple[int, int]]]:
        """Return the rows with queries; and of each leaf its row there, and which of that row's new nodes it is."""
        work, forest = pass_.work, pass_.forest
        of_row: dict[int, list[int]] = {}
        for place, leaf in enumerate(pass_.leaves.tolist()):
            of_row.setdefault(int(forest.row[leaf]), []).append(place)
        rows: list[LaidRow] = []
        found = [(0, -1)] * len(pass_.leaves)
        for index, request in enumerate(work.requests.tolist()):
            mine = of_row.get(index, [])
            nodes = [int(pass_.leaves[place]) for place in mine]
            inner = [node for node in nodes if node >= forest.rows]
            chunk = int(work.scheduled_tokens[index]) if pass_.feeds and len(work.scheduled_tokens) else 0
            if not chunk and not nodes:
                continue
            for place, node in zip(mine, nodes, strict=True):
                found[place] = len(rows), inner.index(node) if node >= forest.rows else -1
            rows.append(self._row(request, chunk, len(inner) < len(nodes), inner, pass_))
        return rows, found

    def _row(self, request: int, chunk: int, root: bool, inner: list[int], pass_: Extension) -> LaidRow:
        """Return the row of one request that feeds a chunk, extends its root or extends inner nodes."""
        held, start = self.rows.held, int(self.rows.held[request])
        end = start
        if chunk or root:
            cached = int(self._view.draft_cached[request])
            start = held[request] = min(start, cached)
            end = cached + chunk
            if root and start == end:
                start -= 1
            self.unpriced_tokens += end - start - chunk
        tree = self._trees.setdefault(request, _Tree({}, []))
        forest = pass_.forest
        parents = [self._place(tree, forest, int(forest.parent[node])) for node in inner]
        tokens = pass_.tokens[inner].tolist() if inner else []
        fed = self._known.between(request, start, end) if end > start else NO_TOKENS
        return LaidRow(request, start, fed, tree.parents, parents, tokens)

    def _place(self, tree: _Tree, forest: Forest, node: int) -> int:
        return -1 if node < forest.rows else tree.places[_code(forest, node)]

    def _book(self, pass_: Extension, rows: list[LaidRow]) -> None:
        for row in rows:
            self.rows.held[row.request] = row.context + len(row.chunk)
        forest = pass_.forest
        for leaf in pass_.leaves[pass_.leaves >= forest.rows].tolist():
            tree = self._trees[int(pass_.work.requests[forest.row[leaf]])]
            parent = self._place(tree, forest, int(forest.parent[leaf]))
            tree.places[_code(forest, leaf)] = len(tree.parents)
            tree.parents.append(parent)

    def fill(self, requests: Ints) -> None:
        """Compute the beginnings of prompts that requests which hold nothing are taken to have from others."""
        cached = self._view.draft_cached[requests]
        new = (self.rows.held[requests] == 0) & (cached > 0)
        fill(self._forward, self.rows, self._known, self._stopwatch, requests[new], cached[new])

    def keep(self, work_requests: Ints, forest: Forest, right: Bools) -> None:
        """Keep of the cached nodes those on the target's path, `right` (nodes,), and forget these rows' trees."""
        source, target = [], []
        path = forest.rows + np.flatnonzero(right[forest.rows :])
        kept: dict[int, int] = {}
        for node in path[np.argsort(forest.depth[path], kind="stable")].tolist():
            request, depth = int(work_requests[forest.row[node]]), int(forest.depth[node])
            place = self._trees[request].places.get(_code(forest, node)) if request in self._trees else None
            if place is None or kept.get(request, 0) != depth - 1:
                continue
            kept[request] = depth
            if place != depth - 1:
                source.append((request, place))
                target.append((request, depth - 1))
        self.rows.copy(self._slots(source), self._slots(target))
        for request, count in kept.items():
            self.rows.held[request] += count
        for request in work_requests.tolist():
            self.forget(request)

    def _slots(self, places: list[tuple[int, int]]) -> Ints:
        """Return the slot of each place behind what a request holds."""
        if not places:
            return NO_TOKENS
        requests, behind = np.array(places).T
        tables = self.rows.tables(requests.tolist())
        return tables.slots(np.arange(len(requests)), self.rows.held[requests] + behind)

    def forget(self, request: int | None = None) -> None:
        """Forget the trees of a request, or of all, and free the pages that hold nothing else."""
        for each in list(self._trees) if request is None else [request]:
            self._trees.pop(each, None)
            if each in self.rows.resident:
                self.rows.reserve(each, int(self.rows.held[each]))


def likeliest_tokens(logits: torch.Tensor, width: int, vocabulary: int) -> Proposed:
    """Return the likeliest tokens behind logits (m, vocabulary or more), on the host."""
    logits = logits[:, :vocabulary]
    exact = logits if logits.dtype == torch.float64 else logits.float()
    probability, token = exact.softmax(-1).topk(width)
    return Proposed(token.cpu().numpy(), probability.double().cpu().numpy())


def _code(forest: Forest, node: int) -> Code:
    return int(forest.slot[node]), int(forest.token[node])


def _logits_of(laid: LaidOut, leaves: list[tuple[int, int]]) -> Ints:
    """Return the place of the logits behind each leaf, (m,), from its row and its number among the row's new nodes."""
    new = np.bincount(laid.work.node_row[~laid.work.node_cached], minlength=laid.work.rows)
    first = np.cumsum(new) - new
    return np.array(
        [laid.chunk_logit[row] if node < 0 else laid.node_logit[first[row] + node] for row, node in leaves],
        dtype=np.int64,
    )


class LookupDrafter:
    """Propose what followed the longest earlier match of the text's last tokens; of several the earliest.

    Where the chain reaches the text's end it goes on with itself. A pass that extends roots searches; the others of a
    step read on in what was found, and take no time.

    Parameters
    ----------
    fewest, most : tokens of a match. confidence : probability of a proposal.
    """

    rows = None

    def __init__(self, known: Known, stopwatch: Stopwatch, fewest: int, most: int, confidence: float) -> None:
        self._known, self._stopwatch = known, stopwatch
        self._fewest, self._most, self._confidence = fewest, most, confidence
        self._found: dict[int, tuple[Ints, float]] = {}

    def extend(self, pass_: Extension) -> tuple[Proposed, float]:
        """Propose a token behind each leaf; see `profiler.backend.drafting.ModelDrafter`."""
        forest, leaves = pass_.forest, pass_.leaves
        requests = pass_.work.requests[forest.row[leaves]].tolist()
        roots = [request for request, leaf in zip(requests, leaves.tolist(), strict=True) if leaf < forest.rows]
        seconds = 0.0
        if roots or not len(leaves):
            found, seconds = self._stopwatch.timed(
                DRAFT, pass_.shape, lambda: {each: self.search(each) for each in roots}
            )
            self._found.update(found)
        token = np.zeros((len(leaves), pass_.work.width), dtype=np.int64)
        probability = np.zeros(token.shape)
        for place, (request, depth) in enumerate(zip(requests, forest.depth[leaves].tolist(), strict=True)):
            chain, sure = self._found[request]
            if len(chain):
                token[place, 0], probability[place, 0] = chain[depth % len(chain)], sure
        return Proposed(token, probability), seconds

    def search(self, request: int) -> tuple[Ints, float]:
        """Return the tokens behind the match up to the text's end, none without a match, and the confidence."""
        text = self._known.between(request, 0, self._known.length(request))
        match, behind = longest_match(text, self._fewest, self._most)
        return behind, self._confidence if match else 0.0

    def keep(self, work_requests: Ints, forest: Forest, right: Bools) -> None:
        """Forget what was found for these requests: there is no cache to keep."""
        for request in work_requests.tolist():
            self.forget(request)

    def forget(self, request: int | None = None) -> None:
        """Forget what was found; see `profiler.backend.drafting.ModelDrafter`."""
        if request is None:
            self._found.clear()
        else:
            self._found.pop(request, None)
