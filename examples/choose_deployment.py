"""Choose GPUs, a scheduler and a draft length: the fewest GPUs on which 95% of a mixed workload attains.

python choose_deployment.py
"""

from pathlib import Path
from typing import Any

import pandas as pd

from specsim import sweep

GOAL = 0.95
SERVERS = {"llama70b_1b_4xa100": 4, "llama70b_1b_4xh100": 4}  # GPUs of one server
LOAD: dict[str, Any] = {"trace": "poisson", "rps": 12, "slo": "./mix.yaml", "requests": 400}
MIX = """
description: "An assistant in an editor, and summaries of documents"
max_tokens: 1024
classes:
  coding: {share: 0.6, tpot_s: 0.04, ttft_s: 1.0}
  summarization: {share: 0.4, tpot_s: 0.15, ttft_s: 10.0}
"""


def main() -> None:
    """Try every choice on the same requests, and print what each attains by its number of GPUs."""
    Path("mix.yaml").write_text(MIX, encoding="utf-8")
    servers: dict[str, list[Any]] = {"profile": list(SERVERS), "replicas": [1, 2, 3]}
    others = sweep({"scheduler": ["vllm", "adaserve"], **servers}, **LOAD)
    chains = sweep({"scheduler__num_speculative_tokens": [2, 4], **servers}, scheduler="vllm_spec", **LOAD)
    for note in dict.fromkeys([*others.notes, *chains.notes]):
        print(f"note: {note}")

    table = pd.concat([others.table, chains.table])
    table = table[table["slo_class"] == "all"]
    length = table["scheduler.num_speculative_tokens"].map(lambda k: "" if pd.isna(k) else f" k={k:.0f}")
    table = table.assign(gpus=table["profile"].map(SERVERS) * table["replicas"], policy=table["scheduler"] + length)
    print(f"share of requests that met every objective at {LOAD['rps']} requests/s, by GPUs\n")
    print(table.pivot(index=["profile", "policy"], columns="gpus", values="slo_attainment").round(3).to_string())

    meets = table[table["slo_attainment"] >= GOAL]
    if meets.empty:
        print(f"\nnothing attains {GOAL:.0%}: try more replicas, or looser objectives")
        return
    for _, row in meets[meets["gpus"] == meets["gpus"].min()].iterrows():
        spread = f"{row['slo_attainment']:.1%} +- {row['load.attainment_half_width']:.1%}"
        doubt = " (overloaded)" if row["load.overloaded"] else " (too short to judge)" if row["load.too_short"] else ""
        named = f"{row['profile']} x {row['replicas']}, {row['policy']}"
        print(f"\n{row['gpus']} GPUs: {named}: {spread}{doubt}", end="")
    print()


if __name__ == "__main__":
    main()
