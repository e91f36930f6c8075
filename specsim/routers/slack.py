"""The server with the least work that is as urgent."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.replica.routing import Coming, Server


class Slack:
    """Send a request where the fewest outstanding tokens are due no later than it is.

    Of equals, where the fewest are outstanding in all, then to the first. A request without an objective is never due:
    for it all tokens count.
    """

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the least work that comes before the request by its deadline."""

        def work(place: int) -> tuple[int, int]:
            server = servers[place]
            return server.outstanding_tokens(coming.due_s), server.outstanding_tokens()

        return min(range(len(servers)), key=work)
