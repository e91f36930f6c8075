"""Causes of missed objectives: one for each missed request, from its row and what it would take alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.errors import SpecsimError
from specsim.metrics.requests import SLO_RELATIVE_TOLERANCE, SPENT_COLUMNS, RequestRows, counted
from specsim.metrics.summary import ratio
from specsim.pass_shape import PassShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from pandas import DataFrame

    from specsim.latency.model import Profile
    from specsim.metrics.any_run import AnyRun


CAUSES: dict[str, str] = {
    "rejected": "refused, or cancelled before the end",
    "link": "in time for TTFT but for the link between the pools",
    "decode_queue": "in time for TTFT but for the wait at the decode replica",
    "queue": "waited for longer than the TTFT objective",
    "own_prompt": "in time for TTFT but for their own prompt pass",
    "objective": "TPOT objective below the time of a lone decode",
    "preemption": "in time for TPOT but for a preemption",
    "draft": "in time for TPOT if drafting took no time",
    "other_prompts": "in time for TPOT but for the prompts of others",
    "prompts_and_draft": "in time for TPOT but for the prompts of others and drafting together",
    "pause": "in time for TPOT but for the longest pause, which others filled",
    "batch": "decoding beside others alone exceeds the TPOT objective",
}
"""Causes of a missed request, the first that holds, with what each says (docs/report.md has the formulas)."""
PROMPTS = tuple(2**power for power in range(4, 18))
"""Tokens of the prompts whose seconds a run keeps."""
ALONE, LONE_DECODE_TOKENS = "alone", 512
LOW, SPOKEN = 0.9, 0.1
"""Attainment of the worst class below which the terminal says why; least share of the second cause that it names."""


def alone(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return the least seconds on an idle server of a decode at 512 tokens of context, and of prompts of `PROMPTS`."""
    decode = PassShape.decode(LONE_DECODE_TOKENS)
    prompts = [min(each.target.seconds(PassShape.prompt(tokens)) for each in profiles) for tokens in PROMPTS]
    return {"decode_s": min(each.target.seconds(decode) for each in profiles), "prompt_s": prompts}


def causes(rows: RequestRows, decode_s: float, prompt_s: NDArray[np.float64]) -> NDArray[np.object_]:
    """Return the cause of each missed request, (N,), "" for those that met their objectives.

    Parameters
    ----------
    decode_s : seconds of a lone decode. prompt_s : (N,) seconds of each prompt alone.
    """
    late, missed, tpot_s = ~rows["ttft_ok"], ~rows["slo_ok"], rows["tpot_s"]
    slo_s = rows["slo_tpot_s"] * (1 + SLO_RELATIVE_TOLERANCE)
    gaps, reading_s, drafting_s = np.maximum(rows["output_tokens"] - 1, 1), rows["prompts_s"], rows["drafting_s"]
    spent = rows["longest_pause_s"], reading_s, drafting_s, reading_s + drafting_s
    steady, unread, undrafted, bare = (tpot_s - seconds / gaps <= slo_s for seconds in spent)
    # A pause of a batch that decodes in step is as long as the others: these are judged by a mean of their own.
    others = 1 - 1 / np.maximum(rows["verifications"], 1)
    moving_s = np.nan_to_num(rows["split.moving_s"]) if "split.moving_s" in rows.columns else 0.0
    arrived_s = rows["split.arrived_s"] if "split.arrived_s" in rows.columns else np.nan
    ttft_slo_s = rows["slo_ttft_s"] * (1 + SLO_RELATIVE_TOLERANCE)
    holds = {
        "rejected": rows["rejected_reason"] != "",
        "link": late & (rows["ttft_s"] - moving_s <= ttft_slo_s),
        "decode_queue": late & (arrived_s - rows["arrival_s"] <= ttft_slo_s),
        "queue": late & (rows["ttft_s"] - prompt_s > rows["slo_ttft_s"]),
        "own_prompt": late,
        "objective": rows["slo_tpot_s"] < decode_s,
        "preemption": steady & (rows["preemptions"] > 0),
        "draft": undrafted & ~(unread & (reading_s > drafting_s)),
        "other_prompts": unread,
        "prompts_and_draft": bare,
        "pause": np.maximum(tpot_s - rows["longest_pause_s"] / gaps, 0) < slo_s * others,
    }
    found = np.select([missed & held.astype(bool) for held in holds.values()], list(holds), "batch")
    return np.where(missed, found, "").astype(object)


def with_causes(run: AnyRun) -> DataFrame:
    """Return the requests that the run counts, with a column ``cause``: one of `CAUSES`, "" where none was missed.

    Raises
    ------
    SpecsimError
        When the run was stored before specsim kept what a request takes alone, or keeps no requests.
    """
    requests, told = counted(run.requests, run.metrics).reset_index(drop=True), run.provenance.get(ALONE)
    if told is None or not SPENT_COLUMNS.keys() <= {*requests}:
        raise SpecsimError("why: the run was made by an older specsim, which kept no pass times; expected it run again")
    prompt_s = np.interp(requests["prompt_tokens"], PROMPTS, told["prompt_s"])
    return requests.assign(cause=causes(RequestRows.of(requests), told["decode_s"], prompt_s))


def why(run: AnyRun) -> DataFrame:
    """Return what limited a run, a row a class and one of all; docs/report.md has the columns.

    Raises
    ------
    SpecsimError
        As `with_causes`.
    """
    from pandas import DataFrame

    requests, block = with_causes(run), run.metrics["specsim"]
    parts = {**{name: part for name, part in requests.groupby("slo_class")}, "all": requests}
    times = {f"time.{name}": share for name, share in block["time_shares"].items()}
    table = DataFrame([{"slo_class": name, **_of(part), **times} for name, part in parts.items()])
    # Without a miss or a verification all values of a column are None.
    return table.astype({name: float for name in table.columns[3:]})


def _of(part: DataFrame) -> dict[str, Any]:
    """Return the numbers of some requests: misses by cause, tokens and seconds a verification, the longest pause."""
    missed, done = int((part["cause"] != "").sum()), part[part["rejected_reason"] == ""]
    verifications = int(done["verifications"].sum())
    decoding_s = float((done["finish_s"] - done["first_decode_s"]).sum())
    return {
        "arrived": len(part),
        "missed": missed,
        **{f"missed.{name}": ratio(int((part["cause"] == name).sum()), missed) for name in CAUSES},
        "drafted": ratio(int(done["speculations"].sum()), verifications),
        "tokens_per_verification": ratio(int(done["decoded_tokens"].sum()), verifications),
        "seconds_per_verification": ratio(decoding_s, verifications),
        "longest_pause_s": part["longest_pause_s"].max(),
    }


def why_said(run: AnyRun) -> tuple[str, ...]:
    """Return a line about the commonest causes of a run whose worst class attains less than `LOW`; else none."""
    block = run.metrics["specsim"]
    if block["worst_class_attainment"] >= LOW:
        return ()
    whole: dict[Any, Any] = why(run).iloc[-1].to_dict()
    shares = {name: float(whole[f"missed.{name}"]) for name in CAUSES}
    first, second, *_ = sorted(shares, key=lambda name: -shares[name])
    said = [f"{shares[name]:.0%}: {CAUSES[name]}{_pool(run, name)}" for name in (first, second)]
    parts = said[: 1 + (shares[second] >= SPOKEN)]
    return (f"why: of {whole['missed']:,} missed requests {'; '.join(parts)}",)


def _pool(run: AnyRun, cause: str) -> str:
    """Return the pool of a split run that a cause lies in: the prefill pool reads, the other decodes."""
    settings = run.made_of.settings
    prefill, replicas = settings.split.prefill, settings.replicas
    if prefill is None or cause in ("rejected", "link"):
        return ""
    reads = cause in ("queue", "own_prompt")
    pool, count = ("prefill", prefill) if reads else ("decode", replicas - prefill)
    return f" (the {pool} pool, {count} of {replicas} replicas)"
