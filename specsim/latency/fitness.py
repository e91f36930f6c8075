"""Whether a measured model's fit predicts passes that it has not seen well enough to be simulated with."""

from __future__ import annotations

from collections.abc import Mapping

from specsim.latency.model import Profile

MOST_MEDIAN = 0.10
"""The largest median of held-out relative errors of a kind of pass that is fit for use."""


def misfit(by_form: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str | None:
    """Return what is wrong with a model's fit, None if nothing is.

    The best of its forms counts, and in it the kind of pass with the largest median.

    Parameters
    ----------
    by_form : held-out relative errors by form, kind of pass, and statistic.
    """
    worst = [
        max((error.get("median", 0.0), kind) for kind, error in kinds.items()) for kinds in by_form.values() if kinds
    ]
    if not worst or min(worst)[0] <= MOST_MEDIAN:
        return None
    median, kind = min(worst)
    return f"the median held-out error of {kind} is {100 * median:.1f}%"


def unfit(profile: Profile) -> str | None:
    """Return a line where the fit of the target or of the draft is not fit for use."""
    for role, model in (("target", profile.target), ("draft", profile.draft)):
        if model.misfit is not None:
            return f"not fit for use: {model.misfit} ({role}), above {100 * MOST_MEDIAN:.0f}%"
    return None
