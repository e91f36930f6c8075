"""Print the figures behind the rows of docs/claims.md: ``SPECSIM_DATA= python -m studies.claims``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specsim.core.request import Floats
from specsim.errors import say
from studies.claims import settings as frozen
from studies.claims.measures import LASTING, MEASURES, THINKING, attainment, fixed, late_steps, mean_e2el_s
from studies.report import half_width

VLLM = ("vllm", "vllm_spec")
ENGINES = ("profiled", "vllm_0_6", "vllm_0_15")


def interval(difference: Floats) -> str:
    """Return the mean of a paired difference (seeds,) and its 95% interval."""
    half = half_width(difference)
    return f"{difference.mean():+.2f} ({difference.mean() - half:+.2f} to {difference.mean() + half:+.2f})"


def smartspec(settings: dict[str, Any]) -> str:
    """Return the mean latencies of k = 0, the fixed k and SmartSpec, in seconds."""
    none, some, own = fixed(0, settings), fixed(frozen.FIXED_TOKENS, settings), mean_e2el_s("smartspec", **settings)
    better = (own / np.minimum(none, some)).mean() - 1
    k = f"k = {frozen.FIXED_TOKENS}"
    times = f"k = 0 {none.mean():.2f} s, {k} {some.mean():.2f} s, SmartSpec {own.mean():.2f} s"
    return f"{times}; {k} less k = 0 {interval(some - none)}; SmartSpec {100 * better:+.1f}% of the better"


def rows() -> Iterator[str]:
    """Yield a line for each row of docs/claims.md and load."""
    for engine in ENGINES:
        for rps in frozen.SMARTSPEC_RATES:
            yield f"1, 1a engine={engine} rps={rps}: {smartspec({**frozen.SMARTSPEC, 'engine': engine, 'rps': rps})}"
        yield f"1b engine={engine}: {smartspec({**LASTING, 'engine': engine})}"
    for scale in frozen.SPECSERVE_SCALES:
        late = {name: late_steps(name, {**frozen.SPECSERVE, "slo_scale": scale}) for name in ("specserve", "threshold")}
        late["specserve with selection time"] = late_steps("specserve", {**THINKING, "slo_scale": scale})
        yield f"2, 2b scale={scale}: late steps {late}"
    for requests in frozen.LAPS_REQUESTS:
        mine, others = mean_e2el_s("laps_sd", **frozen.LAPS, requests=requests), {}
        for name in ("lp_sjf", "las"):
            other = mean_e2el_s(name, **frozen.LAPS, requests=requests)
            others[name] = f"{other.mean():.1f} s, less LAPS-SD {interval(other - mine)}"
        yield f"3, 3a requests={requests}: LAPS-SD {mine.mean():.1f} s; {others}"
    papers = (*frozen.ABLATIONS, *frozen.BASELINES, *frozen.FIGURE_1)
    for row, given, rivals in (("4", frozen.ADASERVE, papers), ("4, today", frozen.TODAY, VLLM)):
        for rate in frozen.ADASERVE_RATES:
            settings = {**given, "trace__point": rate, "rps": rate}
            yield from (f"{row} rps={rate} {line}" for line in adaserve(settings, rivals))


def adaserve(settings: dict[str, Any], others: Sequence[str]) -> Iterator[str]:
    """Yield a line for each measure and other scheduler."""
    for measure in MEASURES:
        mine = attainment(measure, "adaserve", **settings)
        for other in others:
            found = attainment(measure, other, **settings)
            both = f"adaserve {100 * mine.mean():.2f}%, {other} {100 * found.mean():.2f}%"
            yield f"{measure}: {both}, {interval(100 * (mine - found))}"


def main() -> None:
    """Print each line as its runs end."""
    for row in rows():
        say(row)


if __name__ == "__main__":
    main()
