"""Compare schedulers at several request rates: a table on the terminal, a figure in compare_schedulers.png.

Each is tuned on the trace's first twenty minutes with six trials of three seeds, and judged on the rest, with seeds
until each point is known to 4 points, the same for all. Takes about twenty minutes.
"""

import sys
from itertools import product
from typing import Any

import numpy as np

from specsim import load_sweep, sweep

GRIDS: dict[str, dict[str, list[Any]]] = {
    "vllm": {"max_num_batched_tokens": [256, 512, 1024, 2048, 4096, 8192]},
    "vllm_spec": {"num_speculative_tokens": [2, 4, 6], "max_num_batched_tokens": [512, 1024]},
    "adaserve": {"shape.depth_max": [2, 8], "prefill_tokens": ["auto", 512, 1024]},
    "smartspec": {"num_speculative_tokens": [4, 8], "max_num_batched_tokens": [512, 1024, 2048]},
    "specserve": {"num_speculative_tokens": [4, 8], "max_num_batched_tokens": [512, 1024, 2048]},
}
RATES_PER_S = [3, 4, 5, 6]
SHARED: dict[str, Any] = {
    "trace": "azure_conv",  # the twin that ships, unless $SPECSIM_DATA has the trace
    "trace.resample": 60,  # each seed draws minutes of the trace anew, so that seeds are independent
    "keep": "summary",
    "jobs": 2,
}
OUT = "compare_schedulers"  # a second call runs only what is new


def main(requests: int, until: str = "4 points") -> None:
    """Tune every scheduler at 6 requests/s, then run it at every rate on the same requests and the same text."""
    best, later = {}, {**SHARED, "trace.window": [1200, 3500], "requests": requests, "out": f"{OUT}/judged"}
    for scheduler, grid in GRIDS.items():
        best[scheduler] = tuned(scheduler, {f"scheduler.{key}": values for key, values in grid.items()}, requests // 2)
        print(scheduler, *(f"{key}={value}" for key, value in best[scheduler].items()))
        sweep({"rps": RATES_PER_S}, scheduler=scheduler, until=until, **later, **best[scheduler])
    seeds = load_sweep(later["out"]).table.groupby("rps")["seed"].max()  # those of the scheduler with the most
    for scheduler, rate in product(GRIDS, RATES_PER_S):
        sweep({"seed": range(seeds[rate] + 1)}, scheduler=scheduler, rps=rate, **later, **best[scheduler])
    runs = load_sweep(later["out"])
    found = runs.over_seeds(against="vllm_spec").sort_values(["rps", "slo_attainment"]).round(3)  # a row a point
    print("share of requests that met every objective, and its paired difference from vllm_spec\n")
    shown = found.filter(regex="scheduler|rps|seeds|slo_attainment|difference|load")
    print(shown.to_string(index=False, na_rep="-"))
    runs.figure(x="rps").save("compare_schedulers.png")


def tuned(scheduler: str, grid: dict[str, list[Any]], requests: int) -> dict[str, Any]:
    """Return the settings that attain most on the trace's first twenty minutes."""
    earlier = {**SHARED, "trace.window": [0, 1200], "requests": requests, "out": f"{OUT}/tuned/{scheduler}"}
    runs = sweep({**grid, "seed": range(3)}, scheduler=scheduler, rps=6, **earlier)
    attained = np.reshape([run.slo_attainment for run in runs], (-1, 3)).mean(axis=1)
    return dict(zip(grid, list(product(*grid.values()))[attained.argmax()], strict=True))


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3000, *sys.argv[2:3])
