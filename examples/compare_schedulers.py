"""Compare schedulers at several request rates: a table, and a figure in compare_schedulers.csv and .png.

Each is tuned on the first half of the trace with the same number of trials, and judged on the second half, with seeds
until each point is known to 4 points, the same for all. `vllm` and `vllm_spec` mix prompts with decodes, as vLLM does
today; the papers compared with V0, which reads prompts first (`engine=vllm_0_6`). Takes half an hour of two cores.
"""

import sys
from typing import Any

from specsim import sweep, tune

SCHEDULERS = ["vllm_spec", "adaserve", "smartspec", "specserve"]  # vllm, without drafts, is tuned beside them
RATES_PER_S = [4, 5, 6, 7]
SHARED: dict[str, Any] = {
    "trace": "azure_conv",  # the surrogate that ships, unless $SPECSIM_DATA has the trace
    "trace.resample": 60,  # each seed draws minutes of the trace anew, so that seeds are independent
    "jobs": 2,
}
OUT = "compare_schedulers"  # a second call runs only what is new


def main(requests: int, until: str, trials: int) -> None:
    """Tune every scheduler at 6 requests/s, then run it at every rate on the same requests and the same text."""
    search: dict[str, Any] = {"of": "all", "trials": trials, "seeds": range(3), "requests": requests // 2}
    print(tune(SCHEDULERS, rps=6, out=f"{OUT}/tune", sensitivity=False, **search, **SHARED))
    names = {f"{OUT}/tune/{name}.yaml": name for name in ["vllm", *SCHEDULERS]}
    later: dict[str, Any] = {"trace.window": [1751, 3502], "requests": requests, "keep": "summary", **SHARED}
    runs = sweep({"scheduler": [*names], "rps": RATES_PER_S}, until=until, out=f"{OUT}/judged", **later)
    found = runs.over_seeds(against=f"{OUT}/tune/vllm_spec.yaml").replace({"scheduler": names})  # a row a point
    print("share of requests that met every objective, and its paired difference from vllm_spec\n")
    shown = found.sort_values(["rps", "slo_attainment"]).filter(regex="scheduler|rps|seeds|slo_attainment|diff|load")
    print(shown.round(3).to_string(index=False, na_rep="-"))
    found.to_csv("compare_schedulers.csv", index=False)
    runs.figure(x="rps", names=names).save("compare_schedulers.png")


if __name__ == "__main__":
    requests, until, trials = [*sys.argv[1:], *("3000", "4 points", "8")[len(sys.argv) - 1 :]]
    main(int(requests), until, int(trials))
