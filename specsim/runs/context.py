"""How long a request may be: the context of the target model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specsim.replica.request import Bools
from specsim.runs.hardware import Fleet
from specsim.workload.slo import Promised


def within_context(promised: Promised, served_on: Fleet) -> tuple[Promised, Bools | None]:
    """Return requests whose `max_tokens` end with the target's context, and which are too long for it, (N,).

    A request is too long if its prompt and its output are: a client that replays a trace states the output as
    `max_tokens`, and vLLM's server refuses such a request. None: no request is. Of several contexts the least holds.
    """
    stated = [each.truth.target.max_model_len for _, each in served_on.each()]
    known = [each for each in stated if each is not None]
    if not known:
        return promised, None
    requests, context = promised.requests, min(known)
    too_long: Bools = requests.prompt_tokens + promised.output_tokens > context
    left = np.where(too_long, requests.max_tokens, context - requests.prompt_tokens)
    bounded = replace(requests, max_tokens=np.minimum(requests.max_tokens, left))
    return promised._replace(requests=bounded), too_long if too_long.any() else None


def context_notes(served_on: Fleet) -> list[str]:
    """Return a line for each profile that states no context."""
    return [
        f"{named}: states no target.max_model_len: no request is too long for its context"
        for named, each in served_on.each()
        if each.truth.target.max_model_len is None
    ]
