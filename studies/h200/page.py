"""The tables and the figure of docs/h200.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profiler.latency.choice import usable
from profiler.latency.samples import read_samples
from profiler.text import table
from specsim.figures.style import colours, new_figure, style
from specsim.files.yaml_file import shipped
from specsim.latency.profile import load_profile
from studies.report import kept
from tools.public.tables import off_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, FIGURE = Path("docs/h200.md"), Path("docs/figures/h200.png")
TEMPLATE = Path(__file__).with_name("page.md")
CHECKS, RUNS = Path("results/gpu/h200.rows.jsonl"), Path("results/fidelity/h200")
"""The rows that `python -m tools.gpu_session` brought home, and the tables of `specsim fidelity`."""
FIRST, SECOND = (Path(f"results/profiles/llama8b_1b_h200{each}.samples.parquet") for each in ("", "_second"))
PASSES = {
    "decode/1x1@4096": "decode, 1 x 4,096",
    "decode/64x1@1024": "decode, 64 x 1,024",
    "decode/256x1@1024": "decode, 256 x 1,024",
    "prefill/1x2048@2048": "chunk of 2,048 behind 2,048",
    "prefill/64x8@1024": "chains of 8, 64 x 1,024",
    "verify/64x8@1024": "trees of 8, 64 x 1,024",
    "prefill/128x16@1024": "chains of 16, 128 x 1,024",
    "verify/128x16@1024": "trees of 16, 128 x 1,024",
    "verify/8x64@1024": "trees of 64, 8 x 1,024",
    "verify/1x64@4096": "a tree of 64, 1 x 4,096",
}
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
BATCHES = (1, 8, 32, 64, 128, 256)
FEW, MANY = 128, 256
"""Tokens of a pass that counts as small, and above which one counts as large."""
LAYERS = 48
"""Of Qwen3-30B-A3B."""


def page() -> str:
    """Return the page: the prose of `TEMPLATE` with its tables filled from the session's rows."""
    values = times()
    every = list(experts(values, composed_experts()))
    heads = list(head(values, composed_head()))
    off = [abs(each[-1]) for each in every]
    return TEMPLATE.read_text(encoding="utf-8").format(
        attention=table(("one layer's attention, us", "FA3 + tail", "FlexAttention", "ratio"), attention(values)),
        experts=table(
            ("tokens", "grouped", "fused", "router and layout", "fused less these", "composed", "off by, %"),
            ([*map(shown, each[:-1]), f"{each[-1]:+.0f}"] for each in every),
        ),
        experts_off=f"{np.median(off):.0f}",
        experts_worst=f"{max(off):.0f}",
        head=table(("requests", "measured, ms", "composed, ms", "off by, %"), heads),
        runs=table(("trace", "scheduler", "load", "TPOT, ms", "simulated, ms", "off by, %"), runs()),
        launched=table(("role", "passes", "count", "median, ms"), launched()),
        again=again(),
        head_worst=max(abs(int(each[-1])) for each in heads),
        **dict(zip(("few_least", "few_most", "many_most"), composed_passes(), strict=True)),
        tree_least=tree_costs(values)[0],
        tree_most=tree_costs(values)[1],
        rest_verify=shown(100 * (1 - values["spin", "verify"])),
        rest_chunk=shown(100 * (1 - values["spin", "prefill"])),
        held=shown(values["clocks", "held multiprocessors"]),
        bursts=shown(values["clocks", "bursts multiprocessors"]),
        **{
            name: shown(values["layers", case])
            for name, case in (
                ("fused_decode", "fused, decode"),
                ("plain_decode", "transformers, decode"),
                ("fused_chunk", "fused, prefill"),
                ("plain_chunk", "transformers, prefill"),
            )
        },
    )


def times() -> dict[tuple[str, str], float]:
    """Return the values of the checks by check and case; clocks by their quantity too."""
    rows = pd.read_json(CHECKS, lines=True)
    rows = rows[~rows["quantity"].isin(["begun", "ended"])].copy()
    clocks = rows["check"] == "clocks"
    rows.loc[clocks, "case"] += " " + rows.loc[clocks, "quantity"]
    rows = rows[rows["quantity"] != "error"]
    return dict(zip(zip(rows["check"], rows["case"], strict=True), rows["value"], strict=True))


def attention(values: dict[tuple[str, str], float]) -> Iterator[list[str]]:
    """Yield a row a pass: microseconds by kernel, and how many times the fused path's FlexAttention takes."""
    for key, said in PASSES.items():
        split, flex = (values["attention_seconds", f"{kernel}, {key}"] for kernel in ("fa3", "flex"))
        yield [said, f"{split:.0f}", f"{flex:.0f}", f"{flex / split:.2f}"]


def tree_costs(values: dict[tuple[str, str], float]) -> list[str]:
    """Return by how many percent the attention of trees exceeds that of chains of their size, the least first."""
    sizes = ("64x8@1024", "128x16@1024")
    cost = {
        each: [values["attention_seconds", f"fa3, {kind}/{each}"] for kind in ("verify", "prefill")] for each in sizes
    }
    return [shown(each) for each in sorted(100 * (tree / chain - 1) for tree, chain in cost.values())]


def composed_passes() -> list[str]:
    """Return by how many percent composed target passes are off: few tokens least and most, many tokens at most."""
    target = load_profile(shipped("conf") / "profile" / "llama8b_1b_h200.yaml").target
    errors = [(each.batched_tokens, off_by(target, each)) for each in usable(read_samples(FIRST)[1], "target")]
    few = [error for tokens, error in errors if tokens <= FEW]
    return [shown(min(few)), shown(max(few)), shown(-min(error for tokens, error in errors if tokens > MANY))]


def experts(values: dict[tuple[str, str], float], composed: dict[int, float]) -> Iterator[list[float]]:
    """Yield a row a number of tokens: microseconds a layer, and the percent by which the composed cost is off."""
    for tokens in TOKENS:
        case = f"{tokens} tokens"
        laid, grouped = (values["experts", f"{name}, {case}"] for name in ("router and layout alone", "grouped"))
        here = (each for each in values if each[0] == "experts" and each[1].endswith(f", {case}"))
        fused = min(values[each] for each in here if each[1].startswith("fused"))
        yield [
            tokens,
            grouped,
            fused,
            laid,
            fused - laid,
            composed[tokens],
            100 * (composed[tokens] / (fused - laid) - 1),
        ]


def composed_experts() -> dict[int, float]:
    """Return the composed microseconds of a layer's experts, router and norms apart, by tokens."""
    from profiler.compose.library import ComposedPlacement
    from profiler.compose.models import model_of
    from profiler.compose.operators import Operators

    made = Operators(model_of("Qwen3-30B-A3B"), ComposedPlacement("h200_sxm", "vllm", 1, 1, "bf16", "auto"))
    return {tokens: 1e6 * made.named("moe", tokens) / LAYERS for tokens in TOKENS}


def head(values: dict[tuple[str, str], float], composed: dict[int, float]) -> Iterator[list[str]]:
    """Yield a row a batch: milliseconds of a pass of an EAGLE-3 head."""
    for requests in BATCHES:
        measured = values["head", f"decode of {requests} x 1024"] / 1000
        off = 100 * (composed[requests] / measured - 1)
        yield [str(requests), f"{measured:.3f}", f"{composed[requests]:.3f}", f"{off:+.0f}"]


def composed_head() -> dict[int, float]:
    """Return the composed milliseconds of a step's first pass of Llama-3.1-8B's EAGLE-3 head, by requests."""
    from profiler.compose.profile import compose_profile
    from specsim.latency.profile import profile_from_mapping
    from specsim.pass_shape import PassShape

    mapping = compose_profile("Llama-3.1-8B", gpu="h200_sxm", drafter="eagle3")
    draft = profile_from_mapping(mapping, "head").draft
    return {n: 1000 * (draft.step_s + draft.chosen.seconds(PassShape.decode(1024 * n, n))) for n in BATCHES}


def runs() -> Iterator[list[str]]:
    """Yield a row a cell: mean TPOT of the real run and of the simulated one."""
    cells = kept(RUNS / "cells.parquet")
    for (trace, scheduler, load), each in cells.groupby(["pair", "scheduler", "load"], sort=False):
        real, simulated = (
            float(each.loc[each["side"] == side, "mean_tpot_ms"].iloc[0]) for side in ("real", "simulated")
        )
        yield [
            str(trace),
            f"`{scheduler}`",
            f"{load:g}",
            f"{real:.1f}",
            f"{simulated:.1f}",
            f"{100 * (simulated / real - 1):+.0f}",
        ]


def launched() -> Iterator[list[str]]:
    """Yield the median of passes of up to 128 tokens, replayed and launched, by role."""
    rows = kept(RUNS / "passes.parquet")
    small = rows[rows["batched_tokens"] <= 128]
    alone = small["batched_tokens"] == small["requests"]
    trees = small["scheduler"] == "adaserve"
    kinds = {
        "replayed: one query a request": alone,
        "launched: chains": ~alone & ~trees,
        "launched: trees": ~alone & trees,
    }
    for role in ("target", "draft"):
        for said, which in kinds.items():
            seconds = small.loc[which & (small["role"] == role), "measured_s"]
            yield [role, said, f"{len(seconds):,}", f"{1000 * seconds.median():.1f}"]


def again() -> str:
    """Return how far the points of the second sweep lie from those of the first."""
    first, second = (pd.read_parquet(each).query("mode == 'graph'") for each in (FIRST, SECOND))
    both = first.merge(second, on=["role", "key"])
    off = 100 * (both["median_s_y"] / both["median_s_x"] - 1).abs()
    p90 = off.quantile(0.9)
    return f"{len(both)} points, {off.median():.1f}% in the median, {p90:.1f}% at p90, {off.max():.0f}% at most"


def shown(value: float) -> str:
    """Return a number without decimals."""
    return f"{value:.0f}"


def figure() -> Figure:
    """Return attention by kernel, and a layer's experts by tokens."""
    values, places = times(), np.arange(len(PASSES))
    kernels = {"fa3": "FlashAttention-3 and a kernel for the tail", "flex": "FlexAttention"}
    every = list(experts(values, composed_experts()))
    colour = colours([*kernels, "measured", "composed"])
    with style():
        drawn = new_figure(3.4)
        left, right = drawn.subplots(1, 2, width_ratios=(1.3, 1))
        for kernel, shift in zip(kernels, (-0.2, 0.2), strict=True):
            us = [values["attention_seconds", f"{kernel}, {key}"] for key in PASSES]
            left.barh(places + shift, us, height=0.4, color=colour[kernel], label=kernels[kernel])
        left.set_yticks(places, list(PASSES.values()))
        left.invert_yaxis()
        left.set(xscale="log", xlabel="attention of one layer, us")
        left.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0))
        for place, said in ((4, "measured"), (5, "composed")):
            right.plot(TOKENS, [each[place] for each in every], "o-", markersize=3, color=colour[said], label=said)
        right.set_xscale("log", base=2)
        right.set(xlabel="tokens of a pass", ylabel="experts of one layer, us", ylim=(0, None))
        right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return drawn
