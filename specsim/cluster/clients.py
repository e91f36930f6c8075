"""Arrivals of a trace, and clients that wait for their answers."""

from __future__ import annotations

from collections.abc import Generator
from math import inf, nextafter
from typing import Any

import simpy
from simpy.events import URGENT

from specsim.cluster.dispatch import Sending


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


class Clients:
    """A number of clients without think time, who share the requests of a run in its order.

    Parameters
    ----------
    env : simpy environment. count : of clients.
    dispatch : takes the requests of the run; their `arrival_s` is written down as they are sent.
    frontend_s : seconds from sending a request to its place in the engine's queue.
    """

    def __init__(self, env: simpy.Environment, count: int, dispatch: Sending, frontend_s: float) -> None:
        self._env, self._count, self._frontend_s = env, count, frontend_s
        self._dispatch, self._requests = dispatch, dispatch.requests
        self._free = self._sent = self._delivered = 0
        self._sending = False
        for replica in dispatch.replicas:
            replica.answered = self.send

    def start(self) -> None:
        """Let every client send its first request."""
        self.send(self._count)

    def send(self, clients: int) -> None:
        """Let so many clients send their next request, if any is left."""
        self._free += clients
        if self._sending:  # who is rejected while it is sent is answered within this very loop
            return
        self._sending = True
        while self._free and self._sent < len(self._requests):
            request, self._free, self._sent = self._sent, self._free - 1, self._sent + 1
            self._requests.arrival_s[request] = self._env.now
            if self._frontend_s:
                self._env.process(self._later(request))
            else:
                self._deliver(request)
        self._sending = False

    def _later(self, request: int) -> Generator[simpy.Event, Any, None]:
        yield self._env.timeout(self._frontend_s)
        self._deliver(request)

    def _deliver(self, request: int) -> None:
        self._delivered += 1
        self._dispatch.deliver(request)
        if self._delivered == len(self._requests):
            self._dispatch.close()
