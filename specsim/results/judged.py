"""How well a run knows the attainment that a search asks for: of all requests, or of a class of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from specsim.results.batch_means import independent_half_width
from specsim.results.load import TARGET_HALF_WIDTH
from specsim.results.verdicts import depends_on_length

WORST, ALL = "worst", "all"


class Judged(NamedTuple):
    """One run of a search.

    Attributes
    ----------
    share : that was attained. half_width : half of its 95% interval; 1 where nothing is known.
    needed_requests : how many would do; None where that is not known.
    too_short : whether it has fewer. depends_on_length : whether it is overloaded or near saturation.
    nothing_ran : whether every request was rejected or cancelled before a pass: a longer run tells no more.
    """

    share: float
    half_width: float
    needed_requests: int | None
    too_short: bool
    depends_on_length: bool
    nothing_ran: bool = False


def judged(metrics: Mapping[str, Any], of: str) -> Judged:
    """Return what the block ``specsim`` of a run's metrics says of all, of the worst class, or of a class.

    A class has fewer requests, so its attainment is known less well. Its interval is that of independent requests,
    wider by as much as neighbours that miss together widen the interval of all requests. Of a class of which no request
    arrived none has missed, and nothing is known.
    """
    found = _judged(metrics, of)
    if metrics["iterations"]:
        return found
    return found._replace(needed_requests=None, too_short=False, nothing_ran=True)


def _judged(metrics: Mapping[str, Any], of: str) -> Judged:
    block = metrics["load"]
    half = block["attainment_half_width"]
    needed, short, depends = block["needed_requests"], bool(block["too_short"]), depends_on_length(block)
    if of == ALL:
        return Judged(float(metrics["slo_attainment"]), 1.0 if half is None else half, needed, short, depends)
    name = metrics["worst_class"] if of == WORST else of
    classes = metrics["classes"]
    if name not in classes:
        return Judged(1.0, 1.0, None, too_short=True, depends_on_length=depends)
    share = float(classes[name]["slo_attainment"])
    if half is None:
        return Judged(share, 1.0, needed, short, depends)
    arrived = sum(each["requests"] for each in classes.values())
    wider = max(1.0, half / independent_half_width(metrics["slo_attainment"], arrived))
    own = min(1.0, wider * independent_half_width(share, classes[name]["requests"]))
    if own > TARGET_HALF_WIDTH:
        short, needed = True, max(needed or 0, ceil(arrived * (own / TARGET_HALF_WIDTH) ** 2))
    return Judged(share, own, needed, short, depends)
