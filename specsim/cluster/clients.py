"""Arrivals of a trace, and clients that wait for their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import simpy
from simpy.events import URGENT

from specsim.core.request import Floats, Ids, Ints

if TYPE_CHECKING:
    from specsim.cluster.split import Sending


class Arrival(simpy.Event):
    """The moment at which requests arrive, or one rounding before it: first of all that happens then."""

    def __init__(self, env: simpy.Environment, arrival_s: float) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        delay_s = arrival_s - env.now
        if env.now + delay_s > arrival_s:
            delay_s = nextafter(delay_s, 0.0)
        env.schedule(self, URGENT, delay_s)


def arrivals(env: simpy.Environment, dispatch: Sending, frontend_s: float = 0.0) -> Generator[simpy.Event, Any, None]:
    """Deliver each request `frontend_s` after its arrival (a simpy process)."""
    at_s = (dispatch.requests.arrival_s + frontend_s).tolist()
    for request, arrival_s in enumerate(at_s):
        while arrival_s > env.now:
            dispatch.expect(arrival_s)
            yield Arrival(env, arrival_s)
        dispatch.deliver(request)
    dispatch.expect(inf)
    dispatch.close()


class Turns(NamedTuple):
    """The turns of sessions: each arrives some seconds after the turn before it was answered.

    Attributes
    ----------
    then : (N,) the request that follows, -1 where none does.
    delay_s : (N,) seconds from the answer before to the request, NaN where it follows none.
    """

    then: Ints
    delay_s: Floats

    @property
    def begun_by(self) -> Ints:
        """The request, (N,), that begins the turns each is of: itself where it waits for none."""
        first = np.arange(len(self.then))
        for request in np.flatnonzero(self.then >= 0).tolist():  # A turn stands behind the one before it.
            first[self.then[request]] = first[request]
        return first


class Clients:
    """Clients who wait for their answers: each sends the turns of a session, one behind the other.

    A request of no session is a session of one turn.

    Parameters
    ----------
    env : simpy environment. dispatch : takes the requests of the run; their `arrival_s` is written as they are sent.
    frontend_s : seconds from sending a request to its place in the engine's queue.
    count : of clients, who begin the next session as soon as theirs has ended, in the order of the run; None: a session
        begins at the `arrival_s` of its first request.
    turns : of the sessions; None: each request is a session.
    """

    def __init__(
        self, env: simpy.Environment, dispatch: Sending, frontend_s: float, count: int | None, turns: Turns | None
    ) -> None:
        self._env, self._frontend_s = env, frontend_s
        self._dispatch, self._requests = dispatch, dispatch.requests
        everybody = np.arange(len(dispatch.requests))
        self._then = None if turns is None else turns.then.tolist()
        self._delay_s = turns.delay_s.tolist() if turns is not None else []
        self._first = deque((everybody if turns is None else everybody[np.isnan(turns.delay_s)]).tolist())
        self._count, self._free, self._delivered = count, count or 0, 0
        self._at_once: deque[int] = deque()
        self._sending = False
        for replica in dispatch.replicas:
            replica.answered = self.answer

    def start(self) -> None:
        """Let the sessions begin."""
        if self._count is None:
            self._env.process(self._arrive())
        else:
            self._send()

    def answer(self, ids: Ids) -> None:
        """Let the clients go on whose requests (n,) have just been answered, refused or cancelled."""
        for request in ids.tolist():
            then = -1 if self._then is None else self._then[request]
            if then < 0:
                self._free += self._count is not None
            else:
                self._later(then, self._env.now + self._delay_s[then])
        self._send()

    def _send(self) -> None:
        """Deliver what is due by now, and the first requests of free clients."""
        if self._sending:  # A request that is rejected while it is sent is answered within this very loop.
            return
        self._sending = True
        while self._at_once or (self._free and self._first):
            if self._at_once:
                self._deliver(self._at_once.popleft())
            else:
                self._free -= 1
                self._later(self._first.popleft(), self._env.now)
        self._sending = False

    def _later(self, request: int, arrival_s: float) -> None:
        self._requests.arrival_s[request] = arrival_s
        at_s = arrival_s + self._frontend_s
        if at_s > self._env.now:
            self._env.process(self._arriving(request, at_s))
        else:
            self._at_once.append(request)

    def _arrive(self) -> Generator[simpy.Event, Any, None]:
        """Begin each session at its time."""
        for request in self._first:
            yield from self._arriving(request, float(self._requests.arrival_s[request]) + self._frontend_s)

    def _arriving(self, request: int, at_s: float) -> Generator[simpy.Event, Any, None]:
        while at_s > self._env.now:
            yield Arrival(self._env, at_s)
        self._deliver(request)

    def _deliver(self, request: int) -> None:
        self._delivered += 1
        self._dispatch.deliver(request)
        if self._delivered == len(self._requests):
            self._dispatch.close()
