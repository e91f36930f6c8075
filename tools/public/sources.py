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


DATA_FOLDER = "perf/engine_kernels"
OWN_FOLDER = "tools/public/measured"
"""Tables that are part of this repository, whatever the data folder."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One file below the data folder or `OWN_FOLDER`: its origin, its licence, the software it was measured on."""

    file: str
    origin: str
    licence: str
    versions: str


@dataclass(frozen=True, slots=True)
class Kernels:
    """The tables of an engine's own kernels on one GPU type, and the name of that type in the older tables."""

    gemm: Dataset
    decode: Dataset
    context: Dataset
    all_reduce: Dataset
    system: str

    @classmethod
    def of_vllm(cls, gpu: str, version: str, folder: str = DATA_FOLDER) -> Kernels:
        """Return the tables in `folder` measured with vLLM `version` on `gpu` (``a100``, ``h100``, ``h200``)."""

        def table(name: str) -> Dataset:
            return Dataset(f"{folder}/{gpu}_vllm_{name}.parquet", KERNELS, "Apache-2.0", f"vLLM {version}")

        return cls(
            gemm=table("gemm"),
            decode=table("generation_attention"),
            context=table("context_attention"),
            all_reduce=table("allreduce"),
            system=f"{gpu}_sxm",
        )


REPOSITORY = Path(__file__).resolve().parents[2]
UNPUBLISHED = "no source publishes the driver, or the date of its measurements"
VIDUR = "github.com/microsoft/vidur"
AICONFIGURATOR = "PyPI aiconfigurator 0.4.0 (NVIDIA)"
KERNELS = "PyPI aiconfigurator-core 0.12.0 (NVIDIA)"
MHA_DECODE = Dataset(
    "perf/aiconfigurator/generation_attention.parquet",
    AICONFIGURATOR,
    "Apache-2.0",
    "TensorRT-LLM 1.0.0 (A100), 1.0.0rc3 (H100); read for MHA alone, its GQA rows imply twice the memory's peak",
)
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
    """Return the dataset's path in this repository or below `data`; `SpecsimError` when it is in neither."""
    path = (REPOSITORY if dataset.file.startswith(OWN_FOLDER) else data) / dataset.file
    if not path.is_file():
        raise SpecsimError(f"--data {data}: no {dataset.file} below it; expected the public measurements")
    return path


def sha256(data: Path, dataset: Dataset) -> str:
    """Return the checksum of the dataset's file."""
    return hashlib.sha256(located(data, dataset).read_bytes()).hexdigest()
