"""Causes of missed objectives: each by hand, and what a run and a sweep say of them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from specsim import load_run, sweep
from specsim.cli import main
from specsim.metrics.requests import RequestRows
from specsim.metrics.why import CAUSES, alone, causes, why
from specsim.pass_shape import PassShape
from specsim.plugin import load_profile
from tests.made import refusal

LONE_S, PROMPT_S = 0.01, 0.3
MET = {"ttft_s": 0.5, "slo_ttft_s": 1.0, "tpot_s": 0.02, "slo_tpot_s": 0.04, "longest_pause_s": 0.02}
MET |= {"output_tokens": 11, "preemptions": 0, "verifications": 10, "rejected_reason": ""}
MET |= {"prompts_s": 0.17, "drafting_s": 0.1, "arrival_s": 0.0}
BY_HAND = {
    "": {},
    "rejected": {"rejected_reason": "timeout", "ttft_s": 9.0},
    "link": {"ttft_s": 1.2, "split.moving_s": 0.2},
    "decode_queue": {"ttft_s": 1.4, "split.moving_s": 0.2, "split.arrived_s": 0.9},
    # 1.4 s less the prompt's 0.3 s are still over 1 s; 1.2 s less 0.3 s are not.
    "queue": {"ttft_s": 1.4, "tpot_s": 0.09},
    "own_prompt": {"ttft_s": 1.2},
    "objective": {"slo_tpot_s": 0.009},
    # Ten gaps take 0.5 s; without the longest, 0.2 s, they are 0.03 s each on average.
    "preemption": {"tpot_s": 0.05, "longest_pause_s": 0.2, "preemptions": 1},
    "draft": {"tpot_s": 0.05, "prompts_s": 0.1},
    # Drafts too took it beyond the objective, but less than the prompts.
    "other_prompts": {"tpot_s": 0.05},
    # Without prompts (0.17 s) and drafts (0.1 s) of ten gaps 0.058 s are 0.031 s, and 0.07 s are 0.043 s.
    "prompts_and_draft": {"tpot_s": 0.058},
    "pause": {"tpot_s": 0.07, "longest_pause_s": 0.4},
    "batch": {"tpot_s": 0.041, "longest_pause_s": 0.041, "prompts_s": 0.0, "drafting_s": 0.0},  # Ten gaps in step.
}


def test_each_cause_by_hand():
    rows = pd.DataFrame([{**MET, **changed, "request_id": place} for place, changed in enumerate(BY_HAND.values())])
    completed = rows["rejected_reason"] == ""
    rows["ttft_ok"] = completed & (rows["ttft_s"] <= rows["slo_ttft_s"])
    rows["slo_ok"] = rows["ttft_ok"] & (rows["tpot_s"] <= rows["slo_tpot_s"])
    assert list(causes(RequestRows.of(rows), LONE_S, np.full(len(rows), PROMPT_S))) == list(BY_HAND)
    assert set(CAUSES) == set(BY_HAND) - {""}


def test_a_request_alone_takes_what_the_quickest_profile_says():
    slow, quick = load_profile("llama70b_1b_4xa100"), load_profile("llama70b_1b_4xh100")
    told = alone([slow, quick])
    assert told["decode_s"] == quick.target.seconds(PassShape.decode(512)) < slow.target.seconds(PassShape.decode(512))
    assert told["prompt_s"][6] == quick.target.seconds(PassShape.prompt(1024))


def test_shares_of_the_misses_sum_to_one_and_a_sweep_has_its_runs_side_by_side(tmp_path):
    runs = sweep({"scheduler": ["vllm", "vllm_spec"], "requests": [80, 150]}, trace="poisson", rps=30, out=tmp_path)
    table = runs.why()
    idle = sweep({"rps": [0.1]}, scheduler="vllm", trace="poisson", requests=5).why()
    assert len(idle.columns) == len(idle.select_dtypes("number").columns) + 2, "all but run and class"
    assert list(table.columns[:5]) == ["run", "scheduler", "requests", "slo_class", "arrived"]
    shares = table[[f"missed.{name}" for name in CAUSES]][table["missed"] > 0]
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1.0)
    for run, each in zip(runs, table[table["slo_class"] == "all"].to_dict("records"), strict=True):
        done = run.requests
        assert each["missed"] == (~done["slo_ok"]).sum() > 0
        assert each["drafted"] == done["speculations"].sum() / done["verifications"].sum()
        assert each["tokens_per_verification"] == run.metrics["specsim"]["mean_tokens_per_verification"]


def test_the_terminal_says_why_only_of_a_run_that_does_badly(tmp_path, capsys):
    words = ["run", "scheduler=vllm", "trace=poisson", "requests=60"]
    for rate, said in ((0.5, 0), (60, 1)):
        assert main([*words, f"rps={rate}", f"out={tmp_path / str(rate)}"]) == 0
        assert capsys.readouterr().out.count("\nwhy: of ") == said
    split = ["rps=60", "replicas=2", "split.prefill=1", "slo.classes.coding.tpot_ratio=0.9"]
    decode, link = "lone decode (the decode pool, 1 of 2 replicas)", "but for the link between the pools"
    for rate, said in (("50", decode), ("0.5", link)):
        assert main([*words, *split, f"split.link_gb_per_s={rate}", f"out={tmp_path}/link{rate}"]) == 0
        assert said in capsys.readouterr().out.replace("\n", " ")
    run = load_run(tmp_path / "60")
    assert run.why()["missed"].iloc[-1] == (run.causes()["cause"] != "").sum() > 0
    rows = run.requests.drop(columns="prompts_s")
    old = SimpleNamespace(requests=rows, metrics=run.metrics, provenance=run.provenance)
    assert "older specsim" in refusal(why, old)


def test_a_sweep_without_requests_says_what_it_lacks(tmp_path):
    runs = sweep({"rps": [2, 4]}, trace="poisson", requests=20, out=tmp_path, keep="summary")
    assert "the sweep kept no requests" in refusal(runs.why)
