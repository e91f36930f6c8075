"""Compare schedulers at several request rates: a table on the terminal, a figure in compare_schedulers.png.

`tune` gives each twelve trials on the first half of the trace. All are judged on the other half, with seeds until each
point is known to 4 points, the same for all. Takes about half an hour.
"""

import sys
from itertools import product
from typing import Any

from specsim import load_sweep, sweep, tune

SCHEDULERS = ["vllm_spec", "adaserve", "smartspec", "specserve"]  # `tune` adds vllm, which does not speculate
RATES_PER_S = [3, 4, 5, 6]
SHARED: dict[str, Any] = {
    "trace": "azure_conv",  # the twin that ships, unless $SPECSIM_DATA has the trace
    "trace.resample": 60,  # each seed draws minutes of the trace anew, so that seeds are independent
    "jobs": 2,
}
OUT = "compare_schedulers"  # a second call runs only what is new


def main(requests: int, until: str = "4 points", trials: int = 12) -> None:
    """Tune every scheduler at 6 requests/s, then run it at every rate on the same requests and the same text."""
    how: dict[str, Any] = {"of": "all", "trials": trials, "seeds": range(3), "requests": requests // 2}
    tune(SCHEDULERS, rps=6, out=f"{OUT}/tune", **how, **SHARED)
    tuned = {f"{OUT}/tune/{name}.yaml": name for name in ["vllm", *SCHEDULERS]}
    later = {**SHARED, "trace.window": [1750, 3500], "requests": requests, "keep": "summary", "out": f"{OUT}/judged"}
    for file in tuned:
        sweep({"rps": RATES_PER_S}, scheduler=file, until=until, **later)
    seeds = load_sweep(later["out"]).table.groupby("rps")["seed"].max()  # those of the scheduler with the most
    for file, rate in product(tuned, RATES_PER_S):
        sweep({"seed": range(seeds[rate] + 1)}, scheduler=file, rps=rate, **later)
    runs = load_sweep(later["out"])
    found = runs.over_seeds(against=f"{OUT}/tune/vllm_spec.yaml").replace({"scheduler": tuned})  # a row a point
    print("share of requests that met every objective, and its paired difference from vllm_spec\n")
    shown = found.sort_values(["rps", "slo_attainment"]).round(3).filter(regex="^(scheduler|rps|seeds|load|slo_a|diff)")
    print(shown.to_string(index=False, na_rep="-"))
    runs.figure(x="rps", names=tuned).save("compare_schedulers.png")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3000, *sys.argv[2:3], *map(int, sys.argv[3:4]))
