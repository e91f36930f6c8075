"""The server with the least work."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.replica.routing import Coming, Server


class LeastTokens:
    """Send a request where the fewest tokens are outstanding; of equals, to the first."""

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the fewest outstanding tokens."""
        return min(range(len(servers)), key=lambda place: servers[place].outstanding_tokens())
