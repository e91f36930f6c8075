"""What clients and servers do when it takes too long: time-outs, and requests refused at their arrival."""

from __future__ import annotations

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.replica.request import Requests
from specsim.replica.shedding import Shedding

SHORTEST_S, LONGEST_S = 1e-6, 1e9


def timeout(node: CheckedMapping) -> float | None:
    """Return the seconds after which a client gives up, None where clients wait; ``timeout_s`` of a configuration."""
    return node.number("timeout_s", least=SHORTEST_S, most=LONGEST_S) if node.given("timeout_s") else None


def shedding(node: CheckedMapping, requests: Requests) -> Shedding | None:
    """Return which requests are refused at their arrival, None for none; ``shed`` of a configuration.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, clients of a closed loop would send at once what is refused, or no request has
        the objective.
    """
    shed = node.child("shed")
    waiting = shed.whole("waiting") if shed.given("waiting") else None
    ttft = shed.flag("ttft")
    if waiting is None and not ttft:
        return None
    if node.given("concurrency"):
        said = f"shed and concurrency={node.values['concurrency']}: a client sends its next request when one is refused"
        raise SpecsimError(f"{said}; expected one of them")
    if ttft and bool(np.isnan(requests.ttft_slo_s).all()):
        raise SpecsimError("shed.ttft=true: changes nothing: no request has a TTFT objective")
    return Shedding(waiting, ttft)
