"""When each request emitted: its first token, its latest, and the start of its first decoding pass."""

from __future__ import annotations

from typing import NamedTuple

from specsim.replica.request import Floats, Ids
from specsim.replica.state import Progress


class Gaps(NamedTuple):
    """Inter-token latencies of one pass, (m,) each: the request, and the time since its previous emission."""

    requests: Ids
    seconds: Floats


class Emissions:
    """Writes the times of `progress`."""

    __slots__ = ("_progress", "_undecoded")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._undecoded: set[int] = set()

    def decode(self, ids: Ids, start_s: float) -> None:
        """Note the start of the first pass in which a request decodes."""
        if not self._undecoded:
            return
        first = self._undecoded.intersection(ids.tolist())
        if first:
            self._progress.first_decode_s[list(first)] = start_s
            self._undecoded -= first

    def repeat(self, ids: Ids, starts_s: Floats, last_s: Floats | float) -> Gaps:
        """Note emissions of all at each of `starts_s[1:]`, up to the last of each; return the gaps of the first.

        All decode from `starts_s[0]` on.
        """
        self.decode(ids, float(starts_s[0]))
        gaps = Gaps(ids, starts_s[1] - self._progress.last_token_s[ids])
        self._progress.last_token_s[ids] = last_s
        return gaps

    def begin(self, ids: Ids) -> None:
        """Note that requests have their first token and have not decoded."""
        if len(ids):
            self._undecoded.update(ids.tolist())

    def forget(self, request: int) -> None:
        """Note that a request emits nothing any more."""
        self._undecoded.discard(request)

    def finish(self, ids: Ids, at_s: Floats | float) -> None:
        """Note when requests have emitted their last token."""
        self._undecoded.difference_update(ids.tolist())
        self._progress.finish_s[ids] = at_s
