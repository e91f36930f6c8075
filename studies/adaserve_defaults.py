"""AdaServe's defaults against a grid around them, over the composed profiles.

Prints the table of docs/adaserve.md, a row a profile and trace: for each load the default's attainment in %, and how
much the best of the grid gains. The grid changes one default at a time. Its best is chosen on some seeds and compared
with the default on others, paired. Loads are multiples of a profile's capacity: the highest rate at which the default
keeps nine tenths of what it attains on an idle server. An interrupted study continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from profiler.text import table
from specsim import find, sweep
from specsim.commands.parser import Parser, run
from specsim.core.request import Floats
from specsim.errors import say
from studies.report import half_width
from tools.public.recipes import RECIPES

TRACES = ("azure_conv", "azure_code")
LOADS = (0.7, 1.0, 1.2)
GRID: dict[str, Sequence[int]] = {
    "verify_tokens": (96, 192),
    "prefill_tokens": (512, 2048),
    "shape.depth_max": (2,),
    "shape.depth_min": (4,),
    "max_num_seqs": (64,),
}
CHOOSING, JUDGING = (0, 1), range(2, 12)
"""Seeds that choose the best of the grid, and those that compare it with the default."""
REQUESTS = 400
HEADS = ("llama70b_eagle3_4xh100", "gpt_oss_120b_eagle3_2xb200")
PROFILES = sorted(["qwen3_8b_06b_h100", *HEADS, *(recipe.name for recipe in RECIPES)])
"""Profiles of docs/adaserve.md: pairs with a draft model, and two with a head."""
HEAD = ("profile", "trace", *(f"{load:g}" for load in LOADS))
SHORT = {
    "verify_tokens": "B",
    "prefill_tokens": "chunk",
    "shape.depth_max": "depth at most",
    "shape.depth_min": "depth at least",
    "max_num_seqs": "slots",
}
IDLE_RPS, KEPT_SHARE = 0.02, 0.9
"""A rate at which requests hardly meet, and the share of its attainment that a capacity keeps."""


def main() -> int:
    """Run the study and print its table."""
    parser = Parser(prog="python -m studies.adaserve_defaults", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/runs/defaults"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    options = parser.parse_args()
    return run(lambda: _command(options.out, options.jobs))


def _command(out: Path, jobs: int) -> int:
    say(*table(HEAD, ()).splitlines())
    for trace in TRACES:
        for profile in PROFILES:
            cells = loads(profile, trace, out / profile / trace, jobs)
            say(f"| {' | '.join((f'`{profile}`', trace, *cells))} |", flush=True)
    return 0


def loads(profile: str, trace: str, out: Path, jobs: int) -> Iterator[str]:
    """Yield for each load what the default attains, and what the best of the grid gains, with half its 95% interval."""
    common: dict[str, Any] = {"trace": trace, "profile": profile, "requests": REQUESTS, "replicas": 1}
    common |= {"scheduler": "adaserve", "any_fit": True}
    how: dict[str, Any] = {"jobs": jobs, "progress": sys.stderr.isatty()}

    def attained(change: Mapping[str, int], rates: Sequence[float], seeds: Sequence[int]) -> Floats:
        """Return the attainment in %, (rates, seeds)."""
        folder = out / ("_".join(f"{key}={value}" for key, value in change.items()) or "default")
        settings: dict[str, Any] = {f"scheduler.{key}": value for key, value in change.items()}
        runs = sweep({"rps": rates, "seed": seeds}, out=folder, keep="summary", **how, **common, **settings)
        shares = [each.metrics["specsim"]["slo_attainment"] for each in runs]
        return 100 * np.array(shares, dtype=np.float64).reshape(len(rates), len(seeds))

    idle = attained({}, [IDLE_RPS], CHOOSING).mean() / 100
    search: dict[str, Any] = {"target": KEPT_SHARE * idle, "of": "all", "rates": (IDLE_RPS, 64.0), "within": 0.05}
    kept = find({"seed": CHOOSING}, out=out / "capacity", **search, **how, **common)
    rates = [float(f"{load * kept.table['keeps_rps'][0]:.3g}") for load in LOADS]
    changes = [{key: value} for key, values in GRID.items() for value in values]
    chosen = np.array([attained(each, rates, CHOOSING).mean(axis=1) for each in changes])
    default = attained({}, rates, JUDGING)
    for place, rate in enumerate(rates):
        best = changes[int(np.argmax(chosen[:, place]))]
        gains = attained(best, [rate], JUDGING)[0] - default[place]
        ((key, value),) = best.items()
        yield f"{default[place].mean():.1f} {gains.mean():+.1f} ± {half_width(gains):.1f} ({SHORT[key]} {value})"


if __name__ == "__main__":
    raise SystemExit(main())
