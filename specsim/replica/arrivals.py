"""Requests that come by themselves, at the times of their trace: an open loop."""

from __future__ import annotations

from collections.abc import Generator
from math import inf, nextafter
from typing import Any

import simpy
from simpy.events import URGENT

from specsim.replica.dispatch import Sending


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
