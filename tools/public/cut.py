"""Cut an engine's kernel tables of one GPU type out of NVIDIA's wheel.

``python -m tools.public.cut WHEEL h200 0.24.0``; the wheel comes from
``pip download --no-deps aiconfigurator-core==0.12.0``.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from tools.public.sources import OWN_FOLDER, REPOSITORY

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "aiconfigurator_core/systems/data"
TABLES = {
    "gemm": ("gemm", "gemm_perf"),
    "generation_attention": ("attention", "generation_attention_perf"),
    "context_attention": ("attention", "context_attention_perf"),
    "allreduce": ("comm", "custom_allreduce_perf"),
}
KEPT = {
    "gemm": ["gemm_dtype", "m", "n", "k", "latency"],
    "generation_attention": ["num_heads", "num_key_value_heads", "kv_cache_dtype", "batch_size", "step", "latency"],
    "context_attention": ["num_heads", "num_key_value_heads", "kv_cache_dtype", "isl", "latency"],
    "allreduce": ["backend", "num_gpus", "message_size", "latency"],
}


def cut(rows: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the 16-bit rows that `tools.public.operators` reads: heads of 128, no window, one prompt, in graphs."""
    if table == "gemm":
        rows = rows[rows["gemm_dtype"] == "bfloat16"]
    elif table == "allreduce":
        rows = rows[rows["backend"] == "vllm_graph"]
    else:
        rows = rows[(rows["head_dim"] == 128) & (rows["window_size"] == 0) & (rows["kv_cache_dtype"] == "bfloat16")]
        rows = rows[rows["batch_size"] == 1] if table == "context_attention" else rows
    columns = KEPT[table]
    return rows[columns].sort_values(columns).reset_index(drop=True)


def main() -> None:
    """Write the four tables into this repository."""
    import pandas as pd

    parser = argparse.ArgumentParser(prog="python -m tools.public.cut", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("gpu", help="h200: the folder is h200_sxm")
    parser.add_argument("version", help="version of vLLM that was measured")
    options = parser.parse_args()
    with ZipFile(options.wheel) as wheel:
        for table, (folder, name) in TABLES.items():
            inside = f"{FOLDER}/{options.gpu}_sxm/{folder}/vllm/{options.version}/{name}.parquet"
            rows = cut(pd.read_parquet(io.BytesIO(wheel.read(inside))), table)
            file = REPOSITORY / OWN_FOLDER / f"{options.gpu}_vllm_{table}.parquet"
            rows.to_parquet(file, compression="zstd", index=False)
            sys.stdout.write(f"{file.name}: {len(rows):,} rows\n")


if __name__ == "__main__":
    main()
