"""Published points of whole engines: closed loops that others measured, and what is held against them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.compose.profile import compose_profile
from specsim.calibration.fit import Fit
from specsim.calibration.reading import REQUESTS_OF_A_CLIENT, Held, MeasuredPoint, MeasuredServer
from specsim.calibration.replay import BenchLoad
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.engine import Engine, engine_from_mapping
from specsim.latency.model import Profile
from specsim.latency.profile import load_profile, profile_from_mapping
from tools.public import sources

POINTS = sources.Dataset(
    "perf/serving_points/aiconfigurator_h100.parquet", sources.KERNELS, "Apache-2.0", "as each row says"
)
MS = 1e-3
PROFILED, DEFAULT = "profiled", "vllm_0_15"
"""The profile as it is, and the engine that the composed profiles bring."""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """The points of one model on one engine, by the columns of the file that holds them.

    `engine` is the shipped engine that fits, and `seen` says whether its numbers come from these very points.
    `shortest_share` is that of `specsim.calibration.replay.BenchLoad`.
    """

    name: str
    profile: str
    model: str
    backend: str
    version: str | None
    precision: str | None
    engine: str
    seen: bool
    shortest_share: float = 1.0


SETS = (
    PublishedSet(
        "Qwen3-32B, 2 x H100, vLLM 0.12.0",
        "qwen3_32b_06b_2xh100",
        "Qwen/Qwen3-32B",
        "vllm",
        "0.12.0",
        None,
        "vllm_0_12",
        seen=True,
    ),
    PublishedSet(
        "Llama-3.1-70B FP8, 4 x H100, vLLM (InferenceMAX)",
        "llama70b_fp8_1b_4xh100",
        "meta-llama/Llama-3.1-70B",
        "vllm",
        None,
        "fp8",
        "vllm_0_15",
        seen=False,
        shortest_share=0.8,
    ),
    PublishedSet(
        "Qwen3-32B, 2 x H100, SGLang 0.5.1",
        "qwen3_32b_06b_2xh100",
        "Qwen/Qwen3-32B",
        "sglang",
        "0.5.1.post1",
        None,
        "sglang_0_5",
        seen=True,
    ),
)


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """A set's points on some engines.

    `shipped` holds the shipped engine that fits, `others` those that a profile alone and a run without a choice take,
    and `composed` the same engine with a profile of that library's kernels. `calibrated` is with its way in.
    """

    of: PublishedSet
    left_out: int
    others: dict[str, list[Held]]
    shipped: list[Held]
    composed: list[Held]
    calibrated: list[Held]


def engine_named(name: str) -> Engine:
    """Return a shipped engine."""
    return engine_from_mapping(read_yaml(shipped("conf") / "engine" / f"{name}.yaml"), name)


def points_of(data: Path, of: PublishedSet) -> list[MeasuredPoint]:
    """Return the points of a set; requests of a client are not stated, so that ten are taken."""
    rows: Any = sources.read(data, POINTS)
    rows = rows[(rows["model_path"] == of.model) & (rows["backend"] == of.backend)]
    rows = rows[rows["precision"].fillna("") == (of.precision or "")]
    rows = rows[rows["backend_version"].fillna("") == (of.version or "")]
    loads = rows[["isl", "osl", "concurrency"]].astype(int).itertuples(index=False)
    times = (MS * rows[["ttft_ms", "tpot_ms"]]).itertuples(index=False)
    return sorted(
        MeasuredPoint(
            BenchLoad(isl, osl, clients, REQUESTS_OF_A_CLIENT * clients, of.shortest_share), float(ttft), float(tpot)
        )
        for (isl, osl, clients), (ttft, tpot) in zip(loads, times, strict=True)
    )


def compared(data: Path, of: PublishedSet) -> ScoredSet:
    """Return the points of a set whose caches fit, simulated on the engines that they are held against."""
    server = MeasuredServer(load_profile(of.profile))
    every = points_of(data, of)
    base = engine_named(of.engine)
    points = [each for each in every if server.fits(each.load, base)]
    return ScoredSet(
        of,
        len(every) - len(points),
        {name: server.simulated(points, engine_named(name)) for name in (PROFILED, DEFAULT)},
        server.simulated(points, base),
        MeasuredServer(_composed(of, server.profile.gpus)).simulated(points, base),
        Fit(server, base, whole=True).held_out(points),
    )


def _composed(of: PublishedSet, tp: int) -> Profile:
    mapping = compose_profile(of.model.split("/")[1], gpu="h100_sxm", tp=tp, engine=of.backend, precision=of.precision)
    return profile_from_mapping(mapping, of.name)
