"""Compare schedulers at several request rates: a table on the terminal, a figure in compare_schedulers.png.

Each is tuned on the first twenty minutes of the trace with six trials, and judged on the rest. Takes about ten minutes.

python compare_schedulers.py [requests of a run]
"""

import sys
from itertools import product
from typing import Any

from specsim import load_sweep, sweep

GRIDS: dict[str, dict[str, list[Any]]] = {
    "vllm": {"max_num_batched_tokens": [512, 1024, 2048, 4096, 8192, 16384]},
    "vllm_spec": {"num_speculative_tokens": [2, 4, 6], "max_num_batched_tokens": [1024, 8192]},
    "adaserve": {"verify_tokens": ["auto", 256], "prefill_tokens": [512, 1024, 2048]},
    "smartspec": {"num_speculative_tokens": [4, 8], "max_num_batched_tokens": [1024, 2048, 8192]},
    "specserve": {"num_speculative_tokens": [4, 8], "max_num_batched_tokens": [1024, 2048, 8192]},
}
RATES_PER_S = [2, 4, 5, 6, 7]
SEEDS = range(3)
SHARED: dict[str, Any] = {
    "trace": "azure_conv",
    "slo": "adaserve",
}  # the twin that ships, unless $SPECSIM_DATA has the trace
OUT = "compare_schedulers"  # a second call runs only what is new


def main(requests: int = 4000) -> None:
    """Tune every scheduler at 6 requests/s, then run it at every rate on the same requests and the same text."""
    later = {**SHARED, "trace.window": [1200, 3500], "requests": requests}
    for scheduler, grid in GRIDS.items():
        best = tuned(scheduler, {f"scheduler.{key}": values for key, values in grid.items()}, requests // 4)
        print(scheduler, *(f"{key}={value}" for key, value in best.items()))
        sweep({"rps": RATES_PER_S, "seed": SEEDS}, scheduler=scheduler, out=f"{OUT}/judged", **later, **best)
    runs = load_sweep(f"{OUT}/judged")
    for note in runs.notes:
        print(f"note: {note}")

    means = runs.means("slo_attainment")  # over the seeds; one row a class, and one for `all`
    attained = means[means["slo_class"] == "all"].pivot(index="rps", columns="scheduler", values="mean")
    print("share of requests that met every objective, by requests/s\n")
    print(attained[list(GRIDS)].round(3).to_string())
    runs.overview(x="rps").savefig("compare_schedulers.png", dpi=120)


def tuned(scheduler: str, grid: dict[str, list[Any]], requests: int) -> dict[str, Any]:
    """Return the settings that attain most on the trace's first twenty minutes."""
    earlier = {**SHARED, "trace.window": [0, 1200], "requests": requests}
    runs = sweep(grid, scheduler=scheduler, rps=6, out=f"{OUT}/tuned/{scheduler}", **earlier)
    attained = [run.slo_attainment for run in runs]
    return dict(zip(grid, list(product(*grid.values()))[attained.index(max(attained))], strict=True))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
