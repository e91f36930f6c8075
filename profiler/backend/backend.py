"""The backend on real forward passes: the models do all that the simulated one knows."""

from __future__ import annotations

from typing import Any

from profiler.backend.drafting import LookupDrafter, ModelDrafter
from profiler.backend.rows import CachedSequences
from profiler.backend.stopwatch import MOVE, Stopwatch
from profiler.backend.text import RealText
from profiler.backend.verifying import Verifier
from specsim.core.passes import Drafted, DraftPass, Emitted, Pass, TargetPass
from specsim.core.protocols import Oracle, View
from specsim.pass_shape import PassShape

ORACLE = ("output_tokens", "right", "right_ahead", "rounds_left", "agreement", "target_probability")


class TorchBackend:
    """Answer passes by running them, in the seconds that they take; `caches` are what requests hold of each model's.

    Parameters
    ----------
    verifier, drafter : the models over their caches. text : what decides which tokens are drafted and accepted.
    future : what a scheduler with an oracle is told. view : the replica's ledger.
    """

    def __init__(
        self,
        verifier: Verifier,
        drafter: ModelDrafter | LookupDrafter,
        text: RealText,
        future: Oracle,
        view: View,
        stopwatch: Stopwatch,
    ) -> None:
        self._verifier, self.drafter = verifier, drafter
        self._text, self._future, self._view, self._stopwatch = text, future, view, stopwatch
        self.caches: list[CachedSequences] = [each for each in (verifier.rows, drafter.rows) if each is not None]
        self._verified = False

    def move(self, work: Pass, shape: PassShape) -> float:
        """Move the caches that leave for the host or come back before this pass; return the seconds it took."""
        _, seconds = self._stopwatch.timed(MOVE, shape, lambda: self._settle(work))
        return seconds

    def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
        """Return the grown forest and the seconds of each pass; see `specsim.core.protocols.Backend`."""
        self._settle(work)
        if self._verified and len(work.leaves) and not work.forest.draft_nodes:
            self._verified = False
            self.drafter.forget()
        if isinstance(self.drafter, ModelDrafter):
            self.drafter.fill(work.requests)
        return self._text.draft(work, shape, self.drafter.extend)

    def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        """Return what each row emitted and the seconds of the pass; see `specsim.core.protocols.Backend`."""
        self._settle(work)
        self._verified = True
        tokens = self._text.tokens(work.forest)
        return self._verifier.verify(work, shape, tokens, lambda behind: self._text.judge(work, shape, behind))

    def _settle(self, work: Pass) -> None:
        """Take away the caches of who is evicted, and bring back those of who runs."""
        for request in work.evict.tolist():
            self.drafter.forget(request)
            for cache in self.caches:
                if work.transfer:
                    cache.to_host(request)
                else:
                    cache.drop(request)
        self._release(work)
        for request in work.requests.tolist():
            for cache in self.caches:
                cache.from_host(request)

    def _release(self, work: Pass) -> None:
        """Free what requests hold whose clients have given up."""
        here = {*self._view.running.tolist(), *work.requests.tolist()}
        for cache in self.caches:
            gone = cache.resident - here
            if cache.away:
                gone |= cache.away - here - set(self._view.waiting)
            for request in gone:
                self.drafter.forget(request)
                cache.drop(request)

    def __getattr__(self, name: str) -> Any:
        """Return what a scheduler with an oracle is told: the methods of `specsim.core.protocols.Oracle`."""
        if name not in ORACLE:
            raise AttributeError(name)
        return getattr(self._future, name)
