"""Composed profiles against the served points that aiconfigurator-core ships, beside that library's own estimate.

Every other row of its file was looked at while kernels and engine files were chosen ("seen"). The rest is "unseen".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profiler.compose.library import ComposedPlacement, served_points, version
from profiler.compose.models import model_of
from profiler.compose.operators import Operators
from profiler.compose.profile import compose_profile
from specsim.calibration.reading import BUDGET_TOKENS, REQUESTS_OF_A_CLIENT, MeasuredPoint, MeasuredServer
from specsim.calibration.replay import BenchLoad
from specsim.commands.parser import Parser, run
from specsim.errors import SpecsimError, say
from specsim.latency.profile import profile_from_mapping
from studies.report import keep, kept
from studies.served_points.sets import MS, engine_named

if TYPE_CHECKING:
    from pandas import DataFrame

HALVES = ("seen", "unseen")
FOLDER = Path("results/served_points")
MODELS = {
    "MiniMaxAI/MiniMax-M2.5": "MiniMax-M2.5",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen3-235B-A22B-FP8",
    "Qwen/Qwen3-32B": "Qwen3-32B",
    "deepseek-ai/DeepSeek-R1": "DeepSeek-R1",
    "deepseek-ai/DeepSeek-V3": "DeepSeek-V3",
    "meta-llama/Llama-3.1-70B": "Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "Llama-3.1-8B",
    "openai/gpt-oss-120b": "gpt-oss-120b",
}
"""The rows' names of models that are composed, and their own."""
DENSE = ("Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-32B")
OWN = ("MiniMax-M2.5", "Qwen3-235B-A22B-FP8", "DeepSeek-R1", "DeepSeek-V3")
"""Models whose checkpoint has the rows' "fp8", in blocks."""
INFERENCEMAX_SHARE, OUT_OF_STEP_SHARE = 0.8, 0.95
MAY_SPECULATE = ("1.1.0rc2.post2", "1.2.0rc6.post3")
"""TensorRT-LLM's images that InferenceMAX runs DeepSeek with MTP on; the rows do not say which runs did."""
GROUP = ["model", "gpu", "engine", "precision"]
PLACE = ["model", "gpu", "engine", "precision", "tp", "ep"]
LEFT_OUT: dict[str, Callable[[Any], Any]] = {
    "prefill and decode on servers apart": lambda rows: rows["mode"] == "disagg",
    "clients not stated": lambda rows: rows["clients"].isna(),
    "models not composed (multimodal, linear or sparse attention)": lambda rows: rows["model"].isna(),
    "attention split by requests (data-parallel)": lambda rows: (rows["dp"] > 1) & (rows["tp_size"] == 1),
    "more than 8 GPUs": lambda rows: rows["tp"] > 8,
    "several servers behind a router": lambda rows: rows["batch_size"] * rows["dp"] != rows["clients"],
    "images on which DeepSeek may have speculated": lambda rows: (
        rows["model"].str.startswith("DeepSeek") & (rows["backend"] == "trtllm") & rows["version"].isin(MAY_SPECULATE)
    ),
    "the same measurement under another name": lambda rows: rows.sort_values("half").duplicated(
        ["system", "backend", "tp", "ep", "isl", "osl", "clients", "silicon_tpot_ms"]
    ),
}
"""Why rows are left out, the first that holds."""


class Rows(NamedTuple):
    """The rows that are scored, and how many are left out for which reason."""

    scored: DataFrame
    left_out: dict[str, int]


def rows_of(halves: Sequence[str]) -> Rows:
    """Return the rows of some halves, with the placement that each states.

    A row's name says TP and EP where its columns multiply them; the columns state the rest.
    """
    rows: Any = served_points()
    named = rows["id"].str.extract(r"_tp(\d+)(?:_0)?_ep(\d+)").astype(float)
    source = rows["silicon_data_source"]
    dp = rows["attention_dp_size"].fillna(1).clip(lower=1)
    stated = rows["moe_ep_size"].fillna(1).clip(lower=1)
    inferencemax = source.str.contains("db-dump|source_file=20")
    multiplied = inferencemax & (dp == 1) & (stated > 1) & (stated == rows["moe_tp_size"])
    rows = rows.assign(
        row=range(len(rows)),
        half=[HALVES[place % 2] for place in range(len(rows))],
        model=rows["model_path"].map(MODELS),
        clients=source.str.extract(r"silicon_concurrency=(\d+)")[0].astype(float),
        version=rows["backend_version"].fillna(""),
        dp=dp,
        tp=named[0].fillna(rows["tp_size"].where(~multiplied, stated)),
        ep=named[1].fillna(stated.where(dp != rows["tp_size"], stated / dp)),
        inferencemax=inferencemax,
        gpu=rows["system"],
        engine=rows["backend"],
    )
    rows["precision"] = [_precision(*each) for each in rows[["model", "precision", "gemm_quant_mode"]].to_numpy()]
    left_out = {}
    for reason, applies in LEFT_OUT.items():
        found = applies(rows).reindex(rows.index).fillna(False).astype(bool)
        left_out[reason] = int((found & rows["half"].isin(halves)).sum())
        rows = rows[~found]
    return Rows(rows[rows["half"].isin(halves)].astype({"tp": int, "ep": int, "clients": int}), left_out)


def _precision(model: Any, precision: Any, products: Any) -> str:
    """Return the precision of the weights by the command's names, "" for the checkpoint's own."""
    if model == "gpt-oss-120b" or not isinstance(precision, str) or precision == "bf16":
        return ""
    if precision == "fp4":
        return "nvfp4"
    return "" if model in OWN else str(products)


def cache_of(model: str, gpu: str, engine: str) -> str:
    """Return the precision of the cache, which the rows do not state.

    InferenceMAX's script of vLLM on B200s sets 8 bits; of TensorRT-LLM it is assumed, since it fits the seen half.
    """
    eight = model in ("Llama-3.1-70B", "gpt-oss-120b") and (gpu == "b200_sxm" or engine == "trtllm")
    return "fp8" if eight else "auto"


def experts_of(model: str, gpu: str, engine: str) -> str | None:
    """Return the precision of experts that the rows do not state: InferenceMAX's script of vLLM on B200s sets it."""
    return "mxfp4_mxfp8" if (model, gpu, engine) == ("gpt-oss-120b", "b200_sxm", "vllm") else None


def share_of(inferencemax: bool, version: str) -> float:
    """Return the shortest length of a request as a share of the stated one.

    InferenceMAX's client states it. Of other clients it is 1, but of those of SGLang 0.5.6, which were out of step: a
    first token takes a half to a quarter of the time of clients that begin together. 0.95 lets them fall out of step.
    """
    return INFERENCEMAX_SHARE if inferencemax else OUT_OF_STEP_SHARE if version.startswith("0.5.6") else 1.0


def budget_of(inferencemax: bool, engine: str, precision: str | None, tp: int) -> int:
    """Return the most tokens of a pass: what InferenceMAX's scripts of DeepSeek with SGLang set, else the default."""
    if not inferencemax or engine != "sglang":
        return BUDGET_TOKENS
    return 16384 if precision == "nvfp4" else 32768 if tp == 8 else BUDGET_TOKENS


def engine_file(engine: str, version: str) -> str:
    """Return the shipped engine that goes with a version; where it is not stated, with the newest."""
    if engine == "vllm":
        return "vllm_0_12" if version.startswith("0.12") else "vllm_0_15"
    if engine == "trtllm":
        return "trtllm_1_0" if version.startswith("1.0") else "trtllm_1_2"
    return "sglang_0_5"


def score(halves: Sequence[str]) -> None:
    """Score what is not kept yet, a file for each model, GPU, engine and precision; each placement is composed once."""
    import pandas as pd

    for names, rows in rows_of(halves).scored.groupby(GROUP):
        name = f"{'_'.join(filter(None, map(str, names)))}.parquet".lower()
        missing = [half for half in halves if not (FOLDER / half / name).is_file()]
        rows = rows[rows["half"].isin(missing)]
        if not len(rows):
            continue
        found = pd.concat([pd.DataFrame(_scored(*_placed(key), each)) for key, each in rows.groupby(PLACE)])
        for half in missing:
            keep(found[found["half"] == half], FOLDER / half / name, {"library": version()})
        say(f"{name}: {len(found)} rows")


def _placed(key: Any) -> tuple[str, ComposedPlacement]:
    model, gpu, engine, precision, tp, ep = key
    return model, ComposedPlacement(gpu, engine, int(tp), int(ep), precision or None, cache_of(model, gpu, engine))


def _scored(model: str, place: ComposedPlacement, rows: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the errors of each row of one placement, or why there are none."""
    about = ["row", "half", *PLACE, "version", "isl", "osl", "clients"]
    try:
        stated = experts_of(model, place.gpu, place.engine) or place.precision
        server = MeasuredServer(_profile(model, place._replace(precision=stated)))
    except SpecsimError as error:
        for _, row in rows.iterrows():
            yield {**row[about], "refused": str(error)}
        return
    operators = Operators(model_of(model), place)
    for _, row in rows.iterrows():
        server = replace(server, budget_tokens=budget_of(row["inferencemax"], place.engine, place.precision, place.tp))
        engine = engine_named(engine_file(place.engine, row["version"]))
        share = share_of(row["inferencemax"], row["version"])
        load = BenchLoad(row["isl"], row["osl"], row["clients"], REQUESTS_OF_A_CLIENT * row["clients"], share)
        point = MeasuredPoint(load, MS * row["silicon_ttft_ms"], MS * row["silicon_tpot_ms"])
        if not server.fits(load, engine):
            yield {**row[about], "refused": "caches do not fit"}
            continue
        held = server.simulated([point], engine)[0]
        own = MeasuredPoint(load, *operators.served(load.concurrency, load.isl, load.osl))
        yield {
            **row[about],
            "refused": "",
            "tpot": held.tpot_error,
            "e2e": held.e2e_error,
            "ttft": held.ttft_error,
            "library_tpot": own.tpot_s / point.tpot_s - 1,
            "library_e2e": own.e2e_s / point.e2e_s - 1,
        }


def _profile(model: str, place: ComposedPlacement) -> Any:
    settings: dict[str, Any] = place._asdict()
    mapping = compose_profile(model, kv_cache_dtype=settings.pop("cache"), **settings)
    return profile_from_mapping(mapping, model)


def scored(half: str) -> DataFrame:
    """Return the rows of a half that `score` kept."""
    import pandas as pd

    rows = pd.concat([kept(file) for file in sorted((FOLDER / half).glob("*.parquet"))], ignore_index=True)
    return rows.assign(throughput=1 / (1 + rows["e2e"]) - 1, kind=np.where(rows["model"].isin(DENSE), "dense", "MoE"))


def main(argv: Sequence[str] | None = None) -> int:
    """Score the half that was seen, or both."""
    parser = Parser(prog="python -m studies.served_points.composed", description=__doc__)
    parser.add_argument("--unseen", action="store_true", help="the other half too")
    halves = HALVES if parser.parse_args(argv).unseen else HALVES[:1]
    return run(lambda: _command(halves))


def _command(halves: Sequence[str]) -> int:
    score(halves)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
