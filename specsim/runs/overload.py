"""Requests that a replica refuses at their arrival."""

from __future__ import annotations

import numpy as np

from specsim.config.schema import Shed
from specsim.errors import SpecsimError
from specsim.replica.request import Requests
from specsim.replica.shedding import Shedding


def shedding(shed: Shed, clients: int | None, requests: Requests) -> Shedding | None:
    """Return which requests are refused at their arrival, None for none; `clients` are those of a closed loop.

    Raises
    ------
    SpecsimError
        One line when clients of a closed loop would send at once what is refused, or no request has
        the objective.
    """
    waiting, ttft = shed.waiting, shed.ttft
    if waiting is None and not ttft:
        return None
    if clients is not None:
        said = f"shed and concurrency={clients}: a client sends its next request when one is refused"
        raise SpecsimError(f"{said}; expected one of them")
    if ttft and bool(np.isnan(requests.ttft_slo_s).all()):
        raise SpecsimError("shed.ttft=true: changes nothing: no request has a TTFT objective")
    return Shedding(waiting, ttft)
