"""Livelock detection and invariant checks of one server."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pickle import PickleBuffer, dumps
from typing import Any
from zlib import crc32

import numpy as np

from specsim.core.passes import Decodes, DraftPass, Emitted, Rounds, TargetPass
from specsim.core.request import Bools, Floats, Ints
from specsim.errors import SchedulerFault
from specsim.pass_shape import PassShape
from specsim.server.kv_cache import KvPool
from specsim.server.state import Progress, Roster

PASSES = 10_000
LOOK_EVERY = 1_024
TICKS = 20
TOO_LONG = "no next pass within step_limit_s of wall time"


class Stalled(SchedulerFault):
    """A scheduler let requests wait for ever."""


class StepTooLong(BaseException):
    """Thrown into a scheduler that has not come to its next pass in time; no `Exception`, so that none catches it."""


class Headway:
    """Counts the passes of one replica, and those among them that brought nothing.

    A pass brings something when a token is emitted, or more is cached in all than at any time since the last token: a
    long prompt may take many passes, but what is evicted and computed again does not count twice.

    Attributes
    ----------
    passes : of both models so far. idle_passes : those since the last that brought something, as far as it has looked.
    """

    __slots__ = ("_emitted", "_look_at", "_most_cached", "_progress", "_roster", "idle_passes", "passes")

    def __init__(self, progress: Progress, roster: Roster) -> None:
        self.passes = self.idle_passes = 0
        self._progress, self._roster = progress, roster
        self._look_at = LOOK_EVERY
        self._emitted, self._most_cached = (0, 0), 0

    def shrunk(self) -> None:
        """Hear that cache was freed of a request that is gone for good."""
        self._emitted, self._most_cached = (self._roster.ended, 0), 0

    def lost(self) -> bool:
        """Return whether `PASSES` or more have brought nothing by now, looked at now and then."""
        return self.passes >= self._look_at and self._look()

    def _look(self) -> bool:
        self._look_at = self.passes + LOOK_EVERY
        progress, live = self._progress, self._roster.ids
        emitted = self._roster.ended, int(progress.emitted_tokens[live].sum())
        cached = int(progress.target_cached[live].sum()) + int(progress.draft_cached[live].sum())
        if emitted > self._emitted:
            self._emitted, self._most_cached, self.idle_passes = emitted, cached, 0
        elif cached > self._most_cached:
            self._most_cached, self.idle_passes = cached, 0
        else:
            self.idle_passes += LOOK_EVERY
        return self.idle_passes >= PASSES


@contextmanager
def watchdog(alive: Callable[[], Hashable], limit_s: float | None) -> Iterator[None]:
    """Throw `StepTooLong` into this thread whenever `alive()` stays what it is for `limit_s` seconds of wall time.

    Code that waits in a call of the operating system or of a library hears it when that returns.
    """
    if limit_s is None:
        yield
        return
    ended, here = threading.Event(), threading.get_ident()

    def watch() -> None:
        seen, quiet = alive(), 0
        while not ended.wait(limit_s / TICKS):
            now = alive()
            quiet = quiet + 1 if now == seen else 0
            seen = now
            if quiet >= TICKS:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(here), ctypes.py_object(StepTooLong))
                quiet = 0

    dog = threading.Thread(target=watch, name="specsim watchdog", daemon=True)
    dog.start()
    try:
        yield
    finally:
        ended.set()
        dog.join()


class Audit:
    """What verifications fed and accepted and when they brought first and last tokens; and what was promised.

    Parameters
    ----------
    prompt_tokens, output_tokens : (N,) of each request: what is to be read, and what is promised.
    world : what no scheduler may change in a run: anything that can be pickled.
    """

    def __init__(self, prompt_tokens: Ints, output_tokens: Ints, world: Any) -> None:
        self._output_tokens = output_tokens.copy()
        self._due_tokens = prompt_tokens + output_tokens - 1
        self._fed_tokens = np.zeros_like(prompt_tokens)
        self._first_s = np.full(len(prompt_tokens), np.nan)
        self._finish_s = self._first_s.copy()
        self._accepted_tokens = 0
        self._cut = np.zeros(len(prompt_tokens), dtype=np.bool_)
        self._world, self._checksum = world, _checksum(world)

    def see(self, work: TargetPass, shape: PassShape, answer: Emitted, end_s: float) -> None:
        """Note a target pass of this shape that ends at `end_s`, and what it answers."""
        ids = work.requests
        self._fed_tokens[ids] += work.chunks + answer.matched
        if shape.prefill_tokens:
            new = ids[(answer.tokens > 0) & np.isnan(self._first_s[ids])]
            self._first_s[new] = end_s
        if work.forest.draft_nodes:
            self._accepted_tokens += int(np.add.reduce(answer.accepted))
        if np.count_nonzero(answer.finished):
            self._finish_s[ids[answer.finished]] = end_s

    def see_decodes(self, work: TargetPass, decodes: Decodes, starts_s: Floats) -> None:
        """Note passes that decode one token of each row, which start so, the end of the last behind, (passes + 1,)."""
        times, finished = decodes.times, decodes.finished
        self._fed_tokens[work.requests] += times
        self._finish_s[work.requests[finished]] = starts_s[times[finished]]

    def see_rounds(self, work: DraftPass, rounds: Rounds, end_s: float) -> None:
        """Note rounds that begin with this pass, the last of which ends at `end_s`."""
        ids = work.requests
        self._fed_tokens[ids] += np.add.reduce(rounds.matched, axis=0) + len(rounds)
        self._accepted_tokens += int(np.minimum(rounds.matched, rounds.tokens).sum())
        self._finish_s[ids[rounds.finished]] = end_s

    def cut(self, request: int) -> None:
        """Note that the engine gave a request up or refused it: it emits and reads no more than is due."""
        self._cut[request] = True

    def spare(self, tokens: Ints) -> None:
        """Note that so many tokens of each prompt, (N,), were cached when the request began: they are not due."""
        self._due_tokens = np.maximum(self._due_tokens - tokens, 0)

    def check(self, found: Progress, fits: Bools, pools: Sequence[KvPool], scheduler: str) -> None:
        """Hold the account against what the ledgers of all replicas say at the end, (N,) each, and their pools.

        Nothing is due to a request that never `fits` (N,) the cache where it was sent.

        Raises
        ------
        SchedulerFault
            When a request emitted other than what was promised or skipped work, a token came at no pass's end, or the
            world has changed: one line that names the `scheduler` and the first such request.
        """
        what = self._first_lie(found, fits)
        if what is None and any(pool.used_bytes or pool.overdrawn for pool in pools):
            what = "more cache was freed than was held, or less"
        if what is None and _checksum(self._world) != self._checksum:
            what = "the acceptance, the output lengths or the latency model have changed during the run"
        if what is not None:
            raise SchedulerFault(f"scheduler {scheduler}: {what}; expected it to write to nothing but its own")

    def _first_lie(self, found: Progress, fits: Bools) -> str | None:
        cut, promised, due_tokens = self._cut, self._output_tokens * fits, self._due_tokens * fits
        output_tokens = np.where(cut, np.minimum(found.emitted_tokens, promised), promised)
        fed_tokens = np.minimum(self._fed_tokens, due_tokens)
        finish_s = np.where(cut, np.nan, self._finish_s)
        columns: tuple[tuple[str, Any, Any], ...] = (
            ("request {} emitted {} tokens where {} are due", found.emitted_tokens, output_tokens),
            (
                "the target read {1} tokens of request {0} where {2} are due",
                fed_tokens,
                np.where(cut, fed_tokens, due_tokens),
            ),
            ("request {} has its first token at {:g} s; its pass ended at {:g} s", found.first_token_s, self._first_s),
            ("request {} finishes at {:g} s; its last pass ended at {:g} s", found.finish_s, finish_s),
        )
        for text, said, seen in columns:
            wrong = ~((said == seen) | (np.isnan(said) & np.isnan(seen)))
            if wrong.any():
                row = int(wrong.argmax())
                return text.format(row, said[row], seen[row])
        accepted = int(found.accepted_tokens.sum())
        if accepted != self._accepted_tokens:
            return f"{accepted} draft tokens are booked as accepted where {self._accepted_tokens} were"
        return None


def _checksum(world: Any) -> int:
    """Return a checksum of an object; its large arrays are read in place."""
    arrays: list[PickleBuffer] = []
    checksum = crc32(dumps(world, protocol=5, buffer_callback=arrays.append))
    for each in arrays:
        raw = each.raw()
        words = np.frombuffer(raw, dtype=np.uint64, count=raw.nbytes // 8)
        # A sum is eight times as quick as a checksum of every byte.
        checksum = crc32(raw[words.nbytes :], crc32(np.add.reduce(words).tobytes(), checksum))
    return checksum
