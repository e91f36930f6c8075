"""The public measurements: which files, under which licence, and how each is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecsimError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Dataset:
    """One file below the data folder: where it comes from, under which licence, measured on what software."""

    file: str
    origin: str
    licence: str
    versions: str


UNPUBLISHED = "no source publishes the driver, or the date of its measurements"
VIDUR = "github.com/microsoft/vidur"
AICONFIGURATOR = "PyPI aiconfigurator 0.4.0 (NVIDIA)"
TRTLLM = "TensorRT-LLM 1.0.0 (A100), 1.0.0rc3 (H100)"
GEMM = Dataset("perf/aiconfigurator/gemm.parquet", AICONFIGURATOR, "Apache-2.0", TRTLLM)
CONTEXT_ATTENTION = Dataset("perf/aiconfigurator/context_attention.parquet", AICONFIGURATOR, "Apache-2.0", TRTLLM)
DECODE_ATTENTION = Dataset("perf/aiconfigurator/generation_attention.parquet", AICONFIGURATOR, "Apache-2.0", TRTLLM)
ALL_REDUCE = Dataset("perf/aiconfigurator/nccl.parquet", AICONFIGURATOR, "Apache-2.0", "NCCL 2.27.3")
LAYER_A100 = Dataset("perf/vidur/mlp_a100.parquet", VIDUR, "MIT", "commit 7d47513")
LAYER_H100 = Dataset("perf/vidur/mlp_h100.parquet", VIDUR, "MIT", "commit 7d47513")
CPU_OVERHEADS = Dataset("perf/vidur/cpu_overheads_a100_a.csv", VIDUR, "MIT", "blob bf106186")
WHOLE_PASS = Dataset("perf/vidur/cpu_overheads_a100_c.csv", VIDUR, "MIT", "blob 4d6ec352")
CHUNK_ATTENTION = Dataset("perf/vidur/attention_a100_llama2-70b_tp2.parquet", VIDUR, "MIT", "blob ee3dec76")
SPLITWISE = Dataset("perf/splitwise_sim/perf_model.csv", "github.com/Mutinifni/splitwise-sim", "MIT", "commit 8f99e7d")
ADASERVE = Dataset(
    "adaserve/artifact_settings_and_scalars.json",
    "github.com/zikun-li/AdaServe-Artifact-Evaluation",
    "facts from the authors' scripts",
    "the artifact's scripts",
)


@cache
def read(data: Path, dataset: Dataset) -> pd.DataFrame:
    """Return the dataset's rows, not to be written to; `SpecsimError` when the file is not there."""
    import pandas as pd

    path = located(data, dataset)
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def located(data: Path, dataset: Dataset) -> Path:
    """Return the dataset's path below `data`; `SpecsimError` when it is not there."""
    path = data / dataset.file
    if not path.is_file():
        raise SpecsimError(f"--data {data}: no {dataset.file} below it; expected the public measurements")
    return path


def sha256(data: Path, dataset: Dataset) -> str:
    """Return the checksum of the dataset's file."""
    return hashlib.sha256(located(data, dataset).read_bytes()).hexdigest()
