"""AdaServe's `verify_tokens: auto` against a grid of constants, over the composed profiles.

python -m studies.adaserve_budget --out results/runs/budget

Prints the table of docs/schedulers.md: attainment in %, mean over seeds, with the budget that follows the batch and
with the best constant. Loads are multiples of a profile's capacity: the requests that it serves a second when all are
there at once. An interrupted study continues where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profiler.text import table
from specsim import simulate, sweep
from specsim.config.compose import names
from specsim.errors import say

TRACES = ("azure_conv", "azure_code")
LOADS = (0.7, 1.0, 1.2)
CONSTANTS = (64, 96, 128, 192, 256, 384, 512)
SEEDS = range(5)
REQUESTS = 400
LEFT_OUT = ("file", "adaserve_artifact_llama70b", "adaserve_artifact_qwen32b", "smollm2_skip_cpu")
"""Profiles of AdaServe's scripts, which bring its constants, and one of a CPU."""
HEAD = ("profile", "trace", "requests/s", "load", "auto", "best constant", "its B", "512")


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/runs/budget"))
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    say(*table(HEAD, ()).splitlines())
    for profile in (each for each in names("profile") if each not in LEFT_OUT):
        for trace in TRACES:
            for row in rows(profile, trace, arguments.out / profile / trace, arguments.jobs):
                say(f"| {' | '.join(row)} |", flush=True)


def rows(profile: str, trace: str, out: Path, jobs: int) -> Iterator[list[str]]:
    """Yield the rows of one profile on one trace, a load each."""
    common: dict[str, Any] = {"profile": profile, "requests": REQUESTS, "replicas": 1, "any_target": True}
    at_once = simulate("adaserve", trace, rps=1000.0, scheduler__verify_tokens=128, **common)
    capacity = REQUESTS / float(at_once.requests["finish_s"].max())
    rates = {load: round(load * capacity, 3) for load in LOADS}
    axes: dict[str, Any] = {"rps": list(rates.values()), "scheduler.verify_tokens": ("auto", *CONSTANTS), "seed": SEEDS}
    how: dict[str, Any] = {"keep": "summary", "jobs": jobs, "out": out, "progress": sys.stderr.isatty()}
    means = sweep(axes, scheduler="adaserve", trace=trace, **how, **common).means("slo_attainment")
    of_all = means[means["slo_class"] == "all"]
    attained = {(each["rps"], each["scheduler.verify_tokens"]): 100 * each["mean"] for _, each in of_all.iterrows()}
    for load, rate in rates.items():
        best = max(CONSTANTS, key=lambda budget, rate=rate: attained[rate, budget])  # type: ignore[misc]
        figures = (attained[rate, each] for each in ("auto", best))
        told = [*(f"{each:.1f}" for each in figures), str(best), f"{attained[rate, 512]:.1f}"]
        yield [f"`{profile}`", trace, f"{rate:g}", f"{load:g}", *told]


if __name__ == "__main__":
    main()
