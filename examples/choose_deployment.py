"""Choose GPUs and a scheduler with its settings: the fewest GPUs on which 95% of a mixed workload attains.

Each scheduler is tuned by a small grid on the requests of one seed, for each number of servers, and judged on another.

python choose_deployment.py
"""

from pathlib import Path
from typing import Any

import pandas as pd

from specsim import sweep

GOAL = 0.95
SERVERS = {"llama70b_1b_4xa100": 4, "llama70b_1b_4xh100": 4}  # GPUs of one server
LOAD: dict[str, Any] = {"trace": "poisson", "rps": 14, "slo": "./mix.yaml", "requests": 1100, "jobs": 2}
SEEDS = [1, 0]  # that tunes, and that judges
GRIDS: dict[str, dict[str, list[Any]]] = {
    "vllm": {"scheduler.max_num_batched_tokens": [512, 2048]},
    "vllm_spec": {"scheduler.max_num_batched_tokens": [512, 2048], "scheduler.num_speculative_tokens": [2, 4]},
    "adaserve": {"scheduler.shape.depth_max": [2, 3, 4]},
}
MIX = """
description: "An assistant in an editor, and summaries of documents"
max_tokens: 1024
classes:
  coding: {share: 0.6, tpot_s: 0.03, ttft_s: 1.0}
  summarization: {share: 0.4, tpot_s: 0.15, ttft_s: 10.0}
"""


def at_its_best(scheduler: str, grid: dict[str, list[Any]]) -> pd.DataFrame:
    """Return a row for each kind and number of servers: what is attained with the settings that tuning chose there."""
    place: dict[str, list[Any]] = {"profile": list(SERVERS), "replicas": [1, 2]}
    runs = sweep({**place, **grid, "seed": SEEDS}, scheduler=scheduler, **LOAD)
    tuned, judged = (runs.table.query("slo_class == 'all' and seed == @seed") for seed in SEEDS)
    best = tuned.loc[tuned.groupby(list(place))["slo_attainment"].idxmax(), [*place, *grid]]
    return judged.merge(best)


def main() -> None:
    """Print what each scheduler attains by the number of GPUs, and the choices that need the fewest."""
    Path("mix.yaml").write_text(MIX, encoding="utf-8")
    table = pd.concat([at_its_best(scheduler, grid) for scheduler, grid in GRIDS.items()])
    doubted = table["load.overloaded"].eq(True) | table["load.too_short"].eq(True)
    told = table["slo_attainment"].map("{:.1%}".format) + doubted.map({True: "*", False: ""})
    table = table.assign(gpus=table["profile"].map(SERVERS) * table["replicas"], attained=told)
    print(f"attained at {LOAD['rps']} requests/s, by GPUs (*: overloaded, or too short to judge)\n")
    print(table.pivot(index=["profile", "scheduler"], columns="gpus", values="attained").to_string(), "\n")
    meets = table[table["slo_attainment"] >= GOAL]
    for _, row in meets[meets["gpus"] == meets["gpus"].min()].iterrows():
        chosen = " ".join(f"{key}={row[key]:g}" for key in GRIDS[row["scheduler"]])
        spread = f"{row['attained']} +- {row['load.attainment_half_width']:.1%}"
        print(f"{row['gpus']} GPUs: {row['profile']} x {row['replicas']}, {row['scheduler']} {chosen}: {spread}")


if __name__ == "__main__":
    main()
