"""What one replica runs on: the seconds of its passes, what its scheduler believes of them, and its memory."""

from __future__ import annotations

from typing import NamedTuple

from specsim.replica.kv_pool import Memory
from specsim.replica.protocols import Belief


class Machine(NamedTuple):
    """The hardware of one replica.

    Attributes
    ----------
    truth, belief : the latency that passes take, and the latency that its scheduler believes in.
    memory : its key-value pool.
    host_bytes_per_s : how fast its cache moves to the host and back, where a scheduler preempts by transfer.
    """

    truth: Belief
    belief: Belief
    memory: Memory
    host_bytes_per_s: float = float("inf")
