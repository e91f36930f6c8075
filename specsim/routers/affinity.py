"""One server for each session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.replica.routing import Coming, Server
from specsim.rng import mix


class Affinity:
    """Send all requests of a session to one server, by a hash of the session: no load is looked at."""

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place that belongs to the session."""
        return int(mix(np.array(coming.session, dtype=np.int64).astype(np.uint64)) % np.uint64(len(servers)))
