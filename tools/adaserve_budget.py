"""AdaServe's `verify_tokens: auto` against a grid of constants, over the shipped profiles.

python -m tools.adaserve_budget --out results/runs/budget

Prints the table of docs/schedulers.md: attainment in %, mean over seeds, with the budget that follows the batch and with
the best constant. Loads are multiples of a profile's capacity: the requests that it serves a second when all are there at
once. An interrupted study continues where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from specsim import simulate, sweep
from specsim.settings.compose import names

TRACES = ("azure_conv", "azure_code")
LOADS = (0.7, 1.0, 1.2)
BUDGETS = ("auto", 64, 96, 128, 192, 256, 384, 512)
SEEDS = range(5)
REQUESTS = 400
OWN = ("file", "adaserve_artifact_llama70b", "adaserve_artifact_qwen32b", "smollm2_skip_cpu")
"""Profiles left out: those of AdaServe's scripts bring its constants, and one is of a CPU whose width is 1."""


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/runs/budget"))
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    print("| profile | trace | requests/s | load | auto | best constant | its B | 512 |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for profile in (each for each in names("profile") if each not in OWN):
        for row in rows(profile, arguments.out, arguments.jobs):
            print("|", " | ".join(row), "|", flush=True)


def rows(profile: str, out: Path, jobs: int) -> Iterator[list[str]]:
    """Yield the rows of one profile."""
    common = {"profile": profile, "requests": REQUESTS, "replicas": 1, "any_target": True}
    for trace in TRACES:
        at_once = simulate("adaserve", trace, rps=1000.0, scheduler__verify_tokens=128, **common)
        capacity = REQUESTS / float(at_once.requests["finish_s"].max())
        rates = [round(load * capacity, 3) for load in LOADS]
        runs = sweep(
            {"rps": rates, "scheduler.verify_tokens": BUDGETS, "seed": SEEDS},
            scheduler="adaserve",
            trace=trace,
            keep="summary",
            jobs=jobs,
            out=out / profile / trace,
            progress=sys.stderr.isatty(),
            **common,
        )
        means = runs.means("slo_attainment").query("slo_class == 'all'")
        by_budget = means.pivot(index="rps", columns="scheduler.verify_tokens", values="mean") * 100
        for load, rate in zip(LOADS, rates, strict=True):
            attained = by_budget.loc[rate]
            constants = attained.drop("auto")
            best = constants.idxmax()
            figures = (attained["auto"], constants[best])
            yield [profile, trace, f"{rate:g}", f"{load:g}", *(f"{each:.1f}" for each in figures), str(best), f"{attained[512]:.1f}"]


if __name__ == "__main__":
    main()
