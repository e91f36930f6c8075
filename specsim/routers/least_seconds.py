"""The server that is believed to be done first."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.replica.routing import Coming, Server


class LeastSeconds:
    """Send a request where the outstanding tokens are believed to take the fewest seconds.

    Of equals, to the server with the fastest decode pass (batch 1, context 512), then to the first.
    """

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the fewest outstanding seconds."""

        def work(place: int) -> tuple[float, float]:
            server = servers[place]
            return server.outstanding_s(), server.belief.baseline_s

        return min(range(len(servers)), key=work)
