"""Clients that each wait for their answer before they send their next request: a closed loop."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from specsim.replica.dispatch import Sending


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
