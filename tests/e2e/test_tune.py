"""`specsim tune`: from words to an answer, settings that other commands take, and a folder in which it goes on."""

import json
import re

import pandas as pd
import pytest
import yaml

import specsim
from specsim.cli import main
from specsim.search.tuned import SPEEDUP_OFF
from tests.files import contents, page
from tests.made import refusal

WORDS = ["tune", "scheduler=vllm_spec", "trace=poisson", "profile=llama8b_1b_h100", "rps=30", "requests=30", "seed=0"]


@pytest.fixture
def coarse(monkeypatch):
    """Let `tune` look for a highest rate in few and short runs."""
    for name, value in {"WITHIN": 0.5, "LONGEST": 240, "BEYOND": 1 / 4, "HIGHEST": 2.0}.items():
        monkeypatch.setattr(f"specsim.search.tune.{name}", value)


ANSWER = [
    "held-out error of the profile",
    "drafts bring 3.8% less or more (median error of predicted speed-ups)",
    "note: engine=vllm_0_15 (with profile=llama8b_1b_h100), as suggested there",
    "note: MISMATCHED PAIR: acceptance=llama70b_1b is of Llama-3.1-70B",
    *("speed-up 3.8% lower", "acceptance 20% lower", "objectives 20% tighter", "rate 20% higher"),
    *("highest rate with 95% of the worst class: ", "GPUs for 30 requests/s: "),
    "note: highest rate with vllm_spec: too short to judge: ",
    *("other seeds of the trace tune than judge", "run back as vllm_spec it measures +0 from that"),
]


@pytest.mark.usefixtures("coarse")
def test_its_answer_is_a_sentence_and_files_that_any_command_takes(tmp_path, capsys):
    made = tmp_path / "made"
    words = [*WORDS, "scheduler.num_speculative_tokens=1,3", "--trials", "4", "--out", str(made)]
    assert main(words) == 0
    before = contents(made / "summaries")
    capsys.readouterr()
    assert main([*words, "--export", "vllm"]) == 0
    said = capsys.readouterr().out
    assert contents(made / "summaries") == before, "nothing runs twice"
    assert said.startswith("At 30 requests/s the best is vllm_spec (num_speculative_tokens=")
    assert [each for each in ANSWER if each not in said] == []
    table = pd.read_csv(made / "tuned.csv").set_index("scheduler")
    best = yaml.safe_load((made / "vllm_spec.yaml").read_text())
    tokens = best["num_speculative_tokens"]
    assert f"num_speculative_tokens={tokens}" in table["settings"].iloc[0]
    assert table["trials"].to_dict() == {"vllm_spec": 4, "vllm": 4}
    export = json.loads((made / "vllm.json").read_text())
    assert export == {"method": "draft_model", "model": "DRAFT_MODEL", "num_speculative_tokens": tokens}
    back = ["run", f"scheduler={made / 'vllm_spec.yaml'}", *WORDS[2:], f"out={tmp_path / 'back'}"]
    assert main(back) == 0
    assert specsim.load_run(tmp_path / "back").metrics["specsim"]["worst_class_attainment"] <= 1


@pytest.mark.usefixtures("coarse", "one_condition")
def test_a_recording_is_cut_in_two_and_each_seed_draws_blocks_of_a_part():
    values = {"num_speculative_tokens": [1, 3], "max_num_batched_tokens": [512]}
    shared = {"values": values, "trials": 2, "seeds": [0], "progress": False, "profile": "llama8b_1b_h100"}
    settings = {"trace": "azure_conv", "trace__window": [0, 600], "rps": 20, "requests": 30}
    tuned = specsim.tune("vllm_spec", **shared, **settings)
    assert "seconds 0 to 300 of the trace tune, 300 to 600 judge; each seed draws blocks anew" in tuned.notes
    assert "azure_conv: the synthetic surrogate that ships; `specsim trace fetch azure_conv` gets the" in str(tuned)
    trace = pd.DataFrame({"arrival_s": range(40), "prompt_tokens": 64, "output_tokens": 16})
    of_frame = specsim.tune("vllm_spec", **shared, trace=trace)
    assert of_frame.notes[0].startswith("seconds 0 to 20 of the trace tune, 20 to 40 judge")
    assert of_frame.rate == pytest.approx(1.0)


def test_requests_without_arrivals_are_cut_in_halves_that_keep_sessions_together(tmp_path):
    """Three turns of each of six sessions, in halves of three; a file's `trace.turns` is read before the cut."""
    rows = ["session_id,prompt_tokens,output_tokens,delay_s"]
    rows += [f"{name},30,20,{'' if turn == 0 else 1}" for name in "abcdef" for turn in range(3)]
    settings = {"values": {"num_speculative_tokens": [1, 3]}, "trials": 2, "seeds": [0], "progress": False}
    settings |= {"profile": "llama8b_1b_h100", "concurrency": 3, "of": "all", "trace__turns": "added"}
    (tmp_path / "ab.csv").write_text("\n".join(rows))
    both = specsim.tune("vllm_spec", trace=tmp_path / "ab.csv", out=tmp_path / "both", **settings)
    assert "requests 1 to 9 of the trace tune, 10 to 18 judge; runs have 9" in both.notes
    assert "load 20% lower" in both.judgements
    arriving = [f"{name},{place}.0,30,20" for place, name in enumerate("abcdef")]
    (tmp_path / "timed.csv").write_text("\n".join(["session_id,arrival_s,prompt_tokens,output_tokens", *arriving]))
    timed = specsim.tune("vllm_spec", trace=tmp_path / "timed.csv", **{**settings, "trace__turns": None})
    assert not any(each.startswith("load") for each in timed.judgements if each.endswith("higher")), "three requests"
    assert not any(each.startswith("load") for each in both.judgements if each.endswith("higher")), "three sessions"
    (tmp_path / "a.csv").write_text("\n".join(rows[:4]))
    one = specsim.tune("vllm_spec", trace=tmp_path / "a.csv", export="sglang", **settings | {"concurrency": 1})
    assert "export sglang: tuned on engine=vllm_0_15; expected one that serves as sglang does" in one.notes
    assert "the trace cannot be cut: the same requests tune and judge, with other seeds" in one.notes
    before = sorted((tmp_path / "both" / "summaries").iterdir())
    specsim.tune("vllm_spec", trace=tmp_path / "ab.csv", out=tmp_path / "both", **settings)
    assert sorted((tmp_path / "both" / "summaries").iterdir()) == before, "nothing runs twice"


@pytest.mark.usefixtures("coarse", "one_condition")
def test_the_servers_for_a_rate_keep_the_target_and_a_single_one_does_not():
    """Whichever policy carries more of it: where one server attains nothing, the time per token ranks the answer."""
    given = {"trace": "poisson", "rps": 120, "requests": 240, "profile": "llama8b_eagle3_h100", "slo": "one"}
    given |= {"slo__tpot_s": 0.008, "progress": False}
    tuned = specsim.tune("vllm_spec", values={"num_speculative_tokens": [3]}, trials=2, seeds=[0], **given)
    assert tuned.replicas is not None
    assert tuned.replicas > 1
    carrier = tuned.candidates[tuned.carrier]
    assert carrier.scheduler == "vllm_spec"
    assert f"GPUs for 120 requests/s: {tuned.replicas} ({tuned.replicas} x 1) with vllm_spec" in str(tuned)
    settings = {f"scheduler__{key.replace('.', '__')}": each for key, each in carrier.settings.items()}
    attained = [
        specsim.simulate("vllm_spec", replicas=servers, seed=0, **given, **settings).slo_attainment
        for servers in (1, tuned.replicas)
    ]
    assert attained[0] < 0.95 <= attained[1]


def test_the_error_of_predicted_speed_ups_is_the_study_s():
    row = r"^\| median error of the speed-up \| [^|]* \| ([0-9.]+)% \|"
    (median,) = re.findall(row, page("speedups"), re.MULTILINE)
    assert pytest.approx(float(median) / 100) == SPEEDUP_OFF


def test_acceptance_may_be_scaled_but_not_that_of_recorded_texts():
    def accepted(**settings):
        run = specsim.simulate("vllm_spec", "poisson", requests=60, acceptance="bernoulli", **settings)
        return run.metrics["spec_decode_per_position_acceptance_rates"][0]

    assert accepted(acceptance_scale=0.5) == pytest.approx(0.35, abs=0.02), "half of 0.7"
    assert accepted(acceptance_scale=2) > 0.99
    recorded = {"acceptance": "qwen1_5b_05b", "profile": "qwen1_5b_05b_h100", "acceptance_scale": 0.8}
    said = "acceptance_scale=0.8: acceptance=qwen1_5b_05b holds texts"
    assert said in refusal(specsim.simulate, "vllm_spec", **recorded)
