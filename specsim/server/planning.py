"""One turn with a scheduler: its pass, the rules that the pass keeps, and its seconds of planning."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf, nextafter
from types import GeneratorType
from typing import Any, NoReturn

import numpy as np

from specsim.core.passes import MAX_DEPTH, NOBODY, DraftPass, Pass, TargetPass
from specsim.core.protocols import Scheduler, Step, View
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.core.trees import ROOTS, Forest, give
from specsim.core.user_code import complaint, definition, kind_of, placed
from specsim.errors import IllegalPass, ModelFault, SchedulerFault, StepTooLong
from specsim.server.state import Progress, RequestQueues


class Drafts:
    """Rows of the passes of one step; a forest that a draft pass answered carries its rows as `Forest.origin`.

    `open` has legal rows, read-only, by their bytes: trees may be drafted for them.

    A forest lives until its rows are verified or evicted, until trees are grown from roots behind a verification, or
    until the step ends, whichever is first.
    """

    def __init__(self) -> None:
        self.rows: list[Ids] = []
        self.open: dict[bytes, Ids] = {}
        self._verified = False

    def check(self, forest: Forest, rows: Ids) -> None:
        """Refuse a forest that does not live, or not for exactly these open rows.

        Raises
        ------
        IllegalPass
            One line that says what it is instead.
        """
        origin = forest.origin
        if origin is rows or (origin is ROOTS and not forest.draft_nodes):
            return
        if origin is None:
            raise IllegalPass("a forest that no draft pass has answered; expected one that yield returned, or a subset")
        if np.array_equal(origin, rows):
            raise IllegalPass("a forest of the past: drafted in an earlier step, or overtaken by a verification")
        raise IllegalPass(f"a forest of requests {_listed(origin)} in a pass of requests {_listed(rows)}")

    def grown(self, rows: Ids, work: DraftPass, answer: Forest) -> None:
        """Let the answer to a draft pass live."""
        if not self.rows or self.rows[-1] is not rows:
            self.rows.append(rows)
        if answer is not work.forest:
            give(answer, rows)
        if self._verified and len(work.leaves) and not work.forest.draft_nodes:
            self.open, self._verified = {rows.tobytes(): rows}, False

    def close(self, ids: Ids, *, verified: bool = False) -> None:
        """End all trees of these requests, which have been `verified` or evicted."""
        self._verified |= verified
        if len(self.open) == 1 and next(iter(self.open.values())) is ids:
            self.open.clear()
            return
        self.open.pop(ids.tobytes(), None)
        for key, rows in list(self.open.items()) if self.open else ():
            if np.isin(rows, ids).any():
                del self.open[key]

    def end(self) -> None:
        """End the step, and all trees."""
        self.rows.clear()
        self.open.clear()


def _listed(ids: Ids) -> str:
    return f"{', '.join(map(str, ids[:4].tolist()))}{', ...' if len(ids) > 4 else ''}"


_ARRAY, _INT64 = np.ndarray, np.dtype(np.int64)


def owned(work: Pass) -> Pass:
    """Return a well-formed pass whose arrays are copies, so that the scheduler's stay its own.

    Raises
    ------
    IllegalPass
        When it is not made of (n,) int64 arrays, a Forest and whole numbers: one line that names the field, what it
        is and what was expected.
    """
    requests, scheduled, evict, until_s = work.requests, work.scheduled_tokens, work.evict, work.stationary_until_s
    plain = (
        type(requests) is type(scheduled) is type(evict) is _ARRAY
        and requests.dtype is scheduled.dtype is evict.dtype is _INT64
        and requests.ndim == scheduled.ndim == evict.ndim == 1
        and (type(work.forest), type(work.transfer), type(until_s)) == (Forest, bool, float)
        and until_s == until_s
    )
    if isinstance(work, TargetPass):
        if not plain or not (type(work.drafter_away) is type(work.shares) is bool):
            _check(work)
        return TargetPass(requests.copy(), scheduled.copy(), *work[2:])
    if not plain or work.max_depth is not None or not _grows(work):
        _check(work)
    catch_up = scheduled.copy() if len(scheduled) else NOBODY
    return DraftPass(requests.copy(), catch_up, *work[2:])


def _grows(work: DraftPass) -> bool:
    leaves, width, depth, beam = work.leaves, work.width, work.depth, 1 if work.beam is None else work.beam
    if type(leaves) is not _ARRAY or leaves.dtype is not _INT64 or leaves.ndim != 1:
        return False
    return type(width) is type(depth) is type(beam) is int and width >= 0 and 1 <= depth <= MAX_DEPTH and beam >= 1


def _check(work: Pass) -> None:
    """Refuse the first field of a pass that is not what it has to be."""
    until_s = work.stationary_until_s
    is_time = isinstance(until_s, float | int) and not isinstance(until_s, bool) and until_s == until_s
    fits = {
        "requests": _are_ints(work.requests),
        "scheduled_tokens": _are_ints(work.scheduled_tokens),
        "evict": _are_ints(work.evict),
        "forest": type(work.forest) is Forest or "a Forest",
        "transfer": type(work.transfer) is bool or "True or False",
        "stationary_until_s": is_time or "a time in seconds",
    }
    if isinstance(work, TargetPass):
        fits["drafter_away"] = type(work.drafter_away) is bool or "True or False"
        fits["shares"] = type(work.shares) is bool or "True or False"
    else:
        fits["leaves"] = _are_ints(work.leaves)
        fits["width"] = _is_size(work.width, 0)
        fits["beam"] = work.beam is None or _is_size(work.beam, 1)
        fits["depth"] = _is_size(work.depth, 1)
        fits["max_depth"] = work.max_depth is None or _are_ints(work.max_depth)
    for name, expected in fits.items():
        if expected is not True:
            raise IllegalPass(f"{type(work).__name__}.{name} is {kind_of(getattr(work, name))}; expected {expected}")
    if isinstance(work, TargetPass):
        return
    if work.depth > MAX_DEPTH:
        raise IllegalPass(f"DraftPass.depth is {work.depth}; expected at most {MAX_DEPTH:,}")
    if work.max_depth is not None and len(work.max_depth) != len(work.requests):
        raise IllegalPass(f"DraftPass.max_depth has {len(work.max_depth)} rows; expected one for each request")


def _are_ints(array: Any) -> bool | str:
    """Return True for (n,) int64, else what is expected."""
    return (type(array) is _ARRAY and array.dtype == _INT64 and array.ndim == 1) or "a numpy array (n,) of int64"


def _is_size(value: Any, least: int) -> bool | str:
    """Return True for a whole number of at least so much, else what is expected."""
    whole = type(value) is int or isinstance(value, np.integer)
    return (whole and value >= least) or f"a whole number of at least {least}"


def check_growth(work: DraftPass) -> None:
    """Refuse leaves, which are fit, that would get no children or too deep ones.

    Raises
    ------
    IllegalPass
        One line that names the first such leaf.
    """
    forest, leaves, max_depth = work.forest, work.leaves, work.max_depth
    if len(leaves) and not work.width:
        raise IllegalPass("DraftPass.width is 0; expected at least 1 where leaves are extended")
    if len(leaves) and max_depth is not None:
        depth, limit = forest.depth[leaves], max_depth[forest.row[leaves]]
        if np.count_nonzero(deep := depth >= limit):
            said = _first_wrong(
                deep, "leaf {} is at depth {}, and DraftPass.max_depth of its row is {}", leaves, depth, limit
            )
            raise IllegalPass(f"{said}; expected more where a leaf is extended")


def illegal_draft(work: DraftPass, pending: Ints) -> IllegalPass:
    """Return what is wrong with a leaf or what is scheduled, or that nothing would run; rows lack `pending` (n,)."""
    requests, scheduled = work.requests, work.scheduled_tokens
    scheduled = scheduled if len(scheduled) else np.zeros_like(requests)
    forest, leaves, nodes = work.forest, work.leaves, len(work.forest)
    names, counts = np.unique(leaves, return_counts=True)
    for wrong, what in (
        ((leaves < 0) | (leaves >= nodes), f"is no node: the forest has {nodes}"),
        (np.isin(leaves, names[counts > 1]), "is named twice"),
        (np.isin(leaves, forest.parent[forest.rows :]), "has been extended"),
    ):
        if wrong.any():
            return IllegalPass(f"leaf {leaves[wrong][0]} {what}")
    wrong = (scheduled < 0) | (scheduled > pending)
    if wrong.any():
        said = _first_wrong(wrong, "request {} is given {} of {}", requests, scheduled, pending)
        return IllegalPass(f"a draft pass must schedule no more tokens than the drafter's cache lacks: {said}")
    extended = forest.row[leaves]
    wrong = (pending > scheduled)[extended]
    if wrong.any():
        columns = (each[extended] for each in (requests, scheduled, pending))
        said = _first_wrong(wrong, "request {} is given {} of {} tokens", *columns)
        return IllegalPass(f"a leaf can only be extended where the drafter's cache has caught up: {said}")
    return IllegalPass("a draft pass without tokens: none is scheduled, and no drafted node is extended")


def illegal_verification(work: TargetPass, pending: Ints) -> IllegalPass:
    """Return what is wrong: too many tokens scheduled or none, or a tree behind too few; each row lacks `pending`."""
    requests, scheduled, tree = work.requests, work.scheduled_tokens, work.forest.tree_tokens()
    wrong = (scheduled < 1) | (scheduled > pending)
    if wrong.any():
        said = _first_wrong(wrong, "request {} is given {}, {} are pending", requests, scheduled, pending)
        return IllegalPass(f"a target pass must schedule between one and all of the pending tokens: {said}")
    wrong = (tree > 0) & (scheduled < pending)
    if wrong.any():
        said = _first_wrong(wrong, "request {} reads {} of {} pending tokens", requests, scheduled, pending)
        return IllegalPass(f"a tree hangs behind a prefill that is not finished: {said}")
    return IllegalPass(f"a forest with nodes of other rows than its {len(requests)}")


def _first_wrong(wrong: Bools, text: str, *columns: Ints) -> str:
    """Return `text` filled with the first row of the `columns`, (n,) each, that is `wrong` (n,)."""
    row = int(np.flatnonzero(wrong)[0])
    return text.format(*(column[row] for column in columns))


TARGET, DRAFTER = "the target", "the drafter"


def delays(start_s: float, seconds: Sequence[float]) -> Sequence[float]:
    """Return delays from `start_s` that end where these `seconds` end when they are waited for one by one.

    One delay wherever floats allow it, else `seconds`, which are those of a drafter's passes.

    Raises
    ------
    ModelFault
        When no clock can wait for one of them.
    """
    end_s = start_s
    for each in seconds:
        end_s += possible(each, DRAFTER)
    if len(seconds) == 1:
        return seconds
    delay_s = single(start_s, end_s)
    return seconds if delay_s is None else (delay_s,)


def single(start_s: float, end_s: float) -> float | None:
    """Return the delay that ends at exactly `end_s`; None where there is none.

    Where the clock is about as fine as the delay, sums may fall between two numbers and round to the even one: no
    single delay ends at an odd one.
    """
    delay_s = end_s - start_s
    for near_s in (delay_s, nextafter(delay_s, 0.0), nextafter(delay_s, inf)):
        if start_s + near_s == end_s:
            return near_s
    return None


def possible(seconds: float, model: str = TARGET) -> float:
    """Return the seconds of a pass of a model; refuse those that no clock can wait for."""
    if 0 <= seconds < inf:
        return seconds
    raise ModelFault(f"a pass of {model} takes {seconds:g} s; expected a finite number of seconds, at least 0")


def check_rounds(seconds: Floats, end_s: float) -> None:
    """Refuse rounds (n, passes) with a pass that no clock can wait for; they end at `end_s`, each with the target's."""
    if np.minimum.reduce(seconds, axis=None) >= 0 and end_s < inf:
        return
    for model, passes in ((DRAFTER, seconds[:, :-1]), (TARGET, seconds[:, -1:])):
        for each in passes.ravel().tolist():
            possible(each, model)


_PASSES = (DraftPass, TargetPass)


class Conversation:
    """One turn with a scheduler, from its ``step(view)`` to the next scheduling point.

    Raises
    ------
    SchedulerFault
        Here and in `ask`, when the scheduler fails: one line with its name, the simulated time and the user's own line.
    """

    def __init__(self, scheduler: Scheduler, view: View) -> None:
        self._scheduler, self._view = scheduler, view
        try:
            self._step: Step = scheduler.step(view)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if type(self._step) is not GeneratorType and not isinstance(self._step, Generator):
            raise self._fault(f"step returned {kind_of(self._step)}; expected a generator: yield each pass")

    def ask(self, answer: Any) -> Pass | None:
        """Return the next pass, given the answer to the last one (None at first); None when the step has ended."""
        try:
            work = self._step.send(answer)
        except StopIteration as end:
            if isinstance(end.value, DraftPass | TargetPass):
                raise self._fault(f"step returned {kind_of(end.value)}; expected it to be yielded") from None
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if type(work) not in _PASSES:
            self.refuse(f"step yielded {kind_of(work)}; expected a DraftPass or a TargetPass")
        try:
            return owned(work)
        except IllegalPass as error:
            self.refuse(str(error))

    def end(self) -> None:
        """End the step where it yields: its pass has run several times, and has no answer."""
        try:
            self._step.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error

    def refuse(self, reason: str) -> NoReturn:
        """Throw an `IllegalPass` into the step, where it yields, and raise one that names that line.

        The run ends, whatever the step does with it.
        """
        thrown = IllegalPass(reason)
        with suppress(BaseException):
            self._step.throw(thrown)
        raise IllegalPass(self._told(placed(reason, thrown, self._scheduler.step))) from thrown

    def _failed(self, error: BaseException) -> SchedulerFault:
        return SchedulerFault(self._told(placed(complaint(error), error, self._scheduler.step)))

    def _fault(self, what: str) -> SchedulerFault:
        return SchedulerFault(self._told(what + definition(self._scheduler.step)))

    def _told(self, what: str) -> str:
        return f"scheduler {type(self._scheduler).__name__} at {self._view.now_s:g} s: {what}"


PASSES = 10_000
LOOK_EVERY = 1_024
TICKS = 20


class Livelock(SchedulerFault):
    """A scheduler let requests wait for ever."""


class LivelockDetector:
    """Counts the passes of one replica, and those among them that brought nothing.

    A pass brings something when a token is emitted, or more is cached in all than at any time since the last token: a
    long prompt may take many passes, but tokens evicted and computed again do not count twice.

    Attributes
    ----------
    passes : of both models so far. idle_passes : those since the last that brought something, as far as it has looked.
    """

    def __init__(self, progress: Progress, queues: RequestQueues) -> None:
        self.passes = self.idle_passes = 0
        self._progress, self._queues = progress, queues
        self._look_at = LOOK_EVERY
        self._emitted, self._most_cached = (0, 0), 0

    def shrunk(self) -> None:
        """Hear that cache was freed of a request that is gone for good."""
        self._emitted, self._most_cached = (self._queues.ended, 0), 0

    def lost(self) -> bool:
        """Return whether `PASSES` or more have brought nothing by now, looked at now and then."""
        return self.passes >= self._look_at and self._look()

    def _look(self) -> bool:
        self._look_at = self.passes + LOOK_EVERY
        progress, live = self._progress, self._queues.ids
        emitted = self._queues.ended, int(progress.emitted_tokens[live].sum())
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

    Code that waits in a call of the operating system or of a library is interrupted when that returns.
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
