"""Servers in turn."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.replica.routing import Coming, Server


class RoundRobin:
    """Send the first request to the first server, the next to the next, and begin again behind the last."""

    def __init__(self) -> None:
        self._sent = 0

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the next place in turn."""
        place = self._sent % len(servers)
        self._sent += 1
        return place
