"""Prompt lookup as a drafter that serves: one search of a request's text proposes a whole chain."""

from __future__ import annotations

import numpy as np

from profiler.acceptance.lookup import match_lengths
from profiler.backend.drafting import Extension, Proposed
from profiler.backend.known import Known
from profiler.backend.stopwatch import DRAFT, Stopwatch
from profiler.passes.packing import Bools, Ints
from specsim.core.request import Floats
from specsim.core.trees import Forest


class LookupDrafter:
    """Propose what followed the longest earlier match of the text's last tokens; of several the earliest.

    Where the chain reaches the text's end it goes on with itself. A pass that extends roots searches; the others of a
    step read on in what was found, and take no time.

    Parameters
    ----------
    fewest, most : tokens of a match. confidence : (most + 1,) probability of a proposal by the length of its match.
    """

    rows = None

    def __init__(self, known: Known, stopwatch: Stopwatch, fewest: int, most: int, confidence: Floats) -> None:
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
        run = match_lengths(text, self._most)
        if not len(run) or run.max() < self._fewest:
            return text[:0], 0.0
        at = int(run.argmax())
        return text[at + 1 :], float(self._confidence[run[at]])

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
