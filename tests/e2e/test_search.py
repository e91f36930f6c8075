"""`find`, `tune` and `until`: answers that are known as well as was asked for, and folders in which they go on."""

import json
import re

import pandas as pd
import pytest
import yaml

import specsim
from specsim import load_sweep, simulation, sweep
from specsim.cli import main
from specsim.config.configured import from_axes
from specsim.latency.profile import load_profile
from specsim.runs import sweep as resumed
from specsim.runs.plan import checked
from specsim.runs.sweep import check_until
from specsim.search.conditions import error_of
from specsim.search.tuned import COMPOSED, COMPOSED_OFF, HELD_OUT, SPEEDUP_OFF
from tests.files import contents, page
from tests.made import refusal

FIND = ["trace=poisson", "profile=llama70b_1b_4xa100", "requests=30", "seed=0,1", "--rates", "0.5..16"]


def test_find_compares_schedulers_and_goes_on_where_it_was(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous,adaserve", *FIND, "--within", "20%", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr()
    table = pd.read_csv(tmp_path / "find.csv").set_index("scheduler")
    assert (table["misses_rps"] / table["keeps_rps"]).between(1, 1.2, inclusive="right").all()
    assert table["keeps_rps"]["adaserve"] > table["keeps_rps"]["continuous"]
    assert (table[["seeds", "gpus"]] == [2, 4]).all(axis=None)
    assert "highest rate at which 90% of the worst class attain\n" in said.out
    assert re.search(r"\nscheduler +rate +difference to continuous\n", said.out)
    assert re.search(r"\ncontinuous +[\d.]+\* +-\nadaserve +[\d.]+\* +\+[\d.]+\nmean over 2 seeds, too few", said.out)
    assert "note: scheduler=continuous: too short to judge: " in said.out
    assert "\n* a run at the rates around the answer is too short to judge" in said.out
    assert (table["keeps_too_short"] > 0).all()
    assert (tmp_path / "find.png").is_file()
    before = contents(tmp_path, "find.png")
    assert main(words) == 0
    assert contents(tmp_path, "find.png") == before


def test_find_says_where_no_rate_or_every_rate_keeps_the_target(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", *FIND[:-2], "--within", "50%", "--out", str(tmp_path)]
    assert main([*words, "--rates", "30..60"]) == 0
    assert "scheduler=continuous: misses the target at 30 requests/s, the lowest tested" in capsys.readouterr().out
    assert main([*words, "--rates", "0.01..0.02", "--target", "1%"]) == 0
    assert "scheduler=continuous: keeps the target at 0.02 requests/s, the highest tested" in capsys.readouterr().out


@pytest.mark.usefixtures("here", "unrendered")
def test_what_matters_to_one_line_alone_may_be_set_for_all(capsys):
    """Later rounds are of fewer lines, to some of which the setting means nothing."""
    words = ["scheduler=continuous", "replicas=1,8", "router=least_tokens", "trace=poisson", "requests=20", "seed=0,1"]
    words += ["profile=llama8b_1b_h100", "--rates", "0.25..64", "--within", "40%", "--out", "found"]
    assert main(["find", *words]) == 0
    keeps = pd.read_csv("found/find.csv")["keeps_rps"]
    assert len(keeps) == keeps.nunique() == 2
    capsys.readouterr()
    assert main(["sweep", "status", "found"]) == 0
    runs = len(specsim.load_sweep("found"))
    told = capsys.readouterr().out
    assert told.startswith(f"found: {runs} of {runs} runs done, 0 failed, 0 left\n")
    assert "note: these are the rounds so far" in told


def test_a_class_of_which_no_request_arrived_in_a_run_is_one_line(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", "trace=poisson", "profile=llama8b_1b_h100", "seed=0,1,2,3,4"]
    words += ["--of", "summarization", "--rates", "1..2", "--within", "100%", "--out", str(tmp_path)]
    assert main([*words, "requests=4"]) == 2
    assert "no request of it arrived at 1 requests/s with seed " in capsys.readouterr().err.splitlines()[-1]


def test_a_mistake_in_find_is_one_line():
    for key, said in (("rps", "rps is what is looked for"), ("concurrency", "a rate of open arrivals is looked for")):
        assert f"find: {said}; expected " in refusal(specsim.find, {key: [1, 2]})
    for name, value, said in (("within", 95, "a share"), ("rates", (1,), "two rates"), ("longest", 2.5, "a whole")):
        assert f"find: {name}={value!r}: expected {said}" in refusal(specsim.find, {}, **{name: value})


TUNE = ["tune", "scheduler=vllm_spec", "trace=poisson", "profile=llama8b_1b_h100", "rps=30", "requests=30", "seed=0"]


@pytest.fixture
def coarse(monkeypatch):
    """Let `tune` look for a highest rate in few and short runs."""
    for name, value in {"WITHIN": 0.5, "LONGEST": 240, "BEYOND": 1 / 4, "HIGHEST": 2.0}.items():
        monkeypatch.setattr(f"specsim.search.tune.{name}", value)


ANSWER = [
    f"4.4% more or less ({COMPOSED}), or ",
    "drafts bring 3.8% less or more (median error of predicted speed-ups)",
    "note: engine=vllm_0_15 (with profile=llama8b_1b_h100), as suggested there",
    *("note: MISMATCHED PAIR: acceptance=llama70b_1b is of Llama-3.1-70B", "max_num_batched_tokens=8192 the most"),
    *("speed-up 3.8% lower", "acceptance 20% lower", "objectives 20% tighter", "rate 20% higher"),
    *("highest rate with 95% of the worst class: ", "* a run at the rates around the answer is too short to judge"),
    *("other seeds of the trace tune than judge", "run back as vllm_spec it measures +0 from that"),
]
OF_ONE = r"vllm_spec \((?:best trial|second trial|default settings)\)"
PATTERNS = [
    rf"note: highest rate with {OF_ONE}: too short to judge: ",
    rf"GPUs for 30 requests/s: .* with {OF_ONE}: .*% of the worst class meet their objectives over 1 seed\n",
    rf"\nsettings of {OF_ONE} for vllm.*:\nvllm serve (?s:.*)--max-num-batched-tokens 8192 \\\n  --max-num-seqs 1024",
]


@pytest.mark.usefixtures("coarse")
def test_the_answer_of_tune_is_a_sentence_and_files_that_any_command_takes(tmp_path, capsys):
    made = tmp_path / "made"
    words = [*TUNE, "scheduler.num_speculative_tokens=1,3", "--trials", "4", "--out", str(made)]
    assert main(words) == 0
    before = contents(made / "summaries")
    capsys.readouterr()
    assert main([*words, "--export", "vllm"]) == 0
    said = capsys.readouterr().out
    assert contents(made / "summaries") == before, "nothing runs twice"
    assert said.startswith("At 30 requests/s the best is vllm_spec (num_speculative_tokens=")
    assert [each for each in ANSWER if each not in said] == []
    assert [each for each in PATTERNS if not re.search(each, said)] == []
    table = pd.read_csv(made / "tuned.csv").set_index("scheduler")
    tokens = yaml.safe_load((made / "vllm_spec.yaml").read_text())["num_speculative_tokens"]
    assert f"num_speculative_tokens={tokens}" in table["settings"].iloc[0]
    assert table["trials"].to_dict() == {"vllm_spec": 4, "vllm": 4}
    export = json.loads((made / "speculative_config.json").read_text())
    assert export == {"method": "draft_model", "model": "DRAFT_MODEL", "num_speculative_tokens": tokens}
    assert main(["run", f"scheduler={made / 'vllm_spec.yaml'}", *TUNE[2:], f"out={tmp_path / 'back'}"]) == 0
    assert specsim.load_run(tmp_path / "back").metrics["specsim"]["worst_class_attainment"] <= 1


@pytest.mark.usefixtures("coarse", "one_condition")
def test_a_recording_is_cut_in_two_and_each_seed_draws_blocks_of_a_part(monkeypatch, tmp_path):
    monkeypatch.setattr("specsim.search.tune.overtaker", lambda of: ("", min(1, len(of["as given"]) - 1)))
    values = {"num_speculative_tokens": [1, 3], "max_num_batched_tokens": [512]}
    shared = {"values": values, "trials": 2, "seeds": [0], "progress": False, "profile": "llama8b_1b_h100"}
    settings = {"trace": "azure_conv", "trace__window": [0, 600], "rps": 20, "requests": 30}
    tuned = specsim.tune("vllm_spec", **shared, **settings)
    assert "seconds 0 to 300 of the trace tune, 300 to 600 judge; each seed draws blocks anew" in tuned.notes
    assert "azure_conv: the synthetic surrogate that ships; `specsim trace fetch azure_conv` gets the" in str(tuned)
    assert (list(tuned.searched), str(tuned).count("highest rate with 95% of")) == ([0, 1, 2], 3)
    trace = pd.DataFrame({"arrival_s": range(40), "prompt_tokens": 64, "output_tokens": 16})
    of_frame = specsim.tune("vllm_spec", **shared, trace=trace)
    assert of_frame.notes[0].startswith("seconds 0 to 20 of the trace tune, 20 to 40 judge")
    assert of_frame.rate == pytest.approx(1.0)
    given = {"trace": "poisson", "rps": 20, "requests": 30, "trials": 2, "seeds": [0], "progress": False}
    alone = specsim.tune("vllm", **given, profile=load_profile("llama8b_1b_h100"), out=tmp_path)
    assert ([each.scheduler for each in alone.candidates], str(alone).count("whether drafts")) == (["vllm"], 0)


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
    alone = specsim.tune("vllm_spec", trace=tmp_path / "ab.csv", out=tmp_path / "both", sensitivity=False, **settings)
    assert (str(alone.band()), (tmp_path / "both" / "conditions.csv").exists()) == ("(nan, nan)", False)


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
    fleet = rf"{tuned.replicas}[*+]* \({tuned.replicas} x 1\) with {OF_ONE}"
    (percent,) = re.findall(rf"GPUs for 120 requests/s: {fleet}: ([0-9.]+)%", str(tuned))
    settings = {f"scheduler__{key.replace('.', '__')}": each for key, each in carrier.settings.items()}
    attained = [
        specsim.simulate("vllm_spec", replicas=servers, seed=0, **given, **settings).slo_attainment
        for servers in (1, tuned.replicas)
    ]
    assert attained[0] < 0.95 <= attained[1] == pytest.approx(float(percent) / 100, abs=0.0006)


def test_the_error_of_speed_ups_is_the_study_s_and_of_a_composed_profile_that_of_its_kind_against_servers():
    row = r"^\| median error of the speed-up \| [^|]* \| ([0-9.]+)% \|"
    (median,) = re.findall(row, page("speedups"), re.MULTILINE)
    assert pytest.approx(float(median) / 100) == SPEEDUP_OFF
    medians = re.findall(r"^\| (MoE|dense) \| all \| [0-9]+ \| ([0-9.]+) /", page("composing"), re.MULTILINE)
    assert pytest.approx({kind: float(median) / 100 for kind, median in medians}) == COMPOSED_OFF
    kinds = {"llama8b_1b_h100": "dense", "llama8b_eagle3_h100": "dense", "deepseek_v3_mtp_8xh200": "MoE"}
    assert all(error_of(load_profile(name)) == (COMPOSED_OFF[kind], COMPOSED) for name, kind in kinds.items())
    assert error_of(load_profile("qwen32b_05b_h200"))[1] == HELD_OUT


def test_acceptance_may_be_scaled_but_not_that_of_recorded_texts():
    def accepted(**settings):
        run = specsim.simulate("vllm_spec", "poisson", requests=60, acceptance="bernoulli", **settings)
        return run.metrics["spec_decode_per_position_acceptance_rates"][0]

    assert accepted(acceptance_scale=0.5) == pytest.approx(0.35, abs=0.02), "half of 0.7"
    assert accepted(acceptance_scale=2) > 0.99
    for scale in (0, 1e-300):
        never = specsim.simulate("vllm_spec", "poisson", requests=9, acceptance=0.7, acceptance_scale=scale)
        assert never.metrics["specsim"]["mean_tokens_per_verification"] == 1
        assert re.search(f"0.7: before acceptance_scale={scale}: .*0.7: default: 1 tokens", " ".join(never.notes))
    recorded = {"acceptance": "qwen1_5b_05b", "profile": "qwen1_5b_05b_h100", "acceptance_scale": 0.8}
    assert "=0.8: acceptance=qwen1_5b_05b holds texts" in refusal(specsim.simulate, "vllm_spec", **recorded)


SETTINGS = {"trace": "poisson", "requests": 20, "profile": "llama8b_1b_h100", "acceptance": "bernoulli"}
AXES = {"scheduler": ["continuous", "fcfs"], "rps": [30, 1]}
POINTS = ["scheduler=continuous,fcfs", "rps=30,1", *(f"{key}={value}" for key, value in SETTINGS.items())]


def swept(until="14 points"):
    return sweep(AXES, until=until, progress=False, **SETTINGS)


@pytest.fixture(scope="module")
def runs():
    return swept()


def test_every_point_is_known_as_well_as_was_asked_for(runs):
    points = runs.over_seeds()
    assert (points["slo_attainment_half_width"] <= 0.14).all()
    assert points["seeds"].min() == resumed.LEAST_SEEDS < points["seeds"].max()


@pytest.mark.parametrize(
    ("attained", "more"),
    [
        ([0.9] * 5, []),
        # Half the interval is 2.776 x 0.01 / sqrt(5) = 1.24 points.
        ([0.49, 0.51, 0.49, 0.51, 0.5], []),
        # 2.776 x 0.02 / sqrt(5) = 2.48 points: 5 x 1.24^2 = 7.7 seeds.
        ([0.48, 0.52, 0.48, 0.52, 0.5], [5, 6, 7]),
        ([0.1, 0.9, 0.1, 0.9, 0.5], [5, 6, 7, 8, 9]),
        ([0.1, 0.9, 0.1, None, 0.5], []),
    ],
)
def test_the_next_seeds_follow_from_how_wide_the_interval_is(attained, more):
    point = {"scheduler": ["fcfs"], "seed": range(5)}
    seeds = resumed._Seeds(checked(from_axes(point, SETTINGS)), 0.02)
    assert seeds.more() == []
    for each, share in zip(seeds.points(), attained, strict=True):
        seeds.ended(each, share)
    assert [each.config["seed"] for each in seeds.more()] == more


def test_a_point_gets_no_more_seeds_than_the_most(monkeypatch):
    monkeypatch.setattr(resumed, "MOST_SEEDS", 6)
    runs = swept("0.1 points")
    assert runs.table.groupby(["scheduler", "rps"])["seed"].nunique().max() == 6
    (note,) = runs.whole_notes
    wide = int((runs.over_seeds()["slo_attainment_half_width"] > 0.001).sum())
    assert note.endswith(f"; {wide} of 4 points stay wider with 6 seeds, the most; longer runs narrow it (requests=)")


def test_a_sweep_until_goes_on_where_it_was_stopped(tmp_path, runs, started, capsys, monkeypatch):
    command = ["run", "-m", *POINTS, "--until", "14 points", "--keep", "summary"]
    really = simulation.run

    def breaks(*given):
        if len(started) == 22:
            raise KeyboardInterrupt
        return really(*given)

    with monkeypatch.context() as broken:
        broken.setattr(simulation, "run", breaks)
        assert main([*command, f"out={tmp_path / 'one'}"]) == 130
    kept = rf"22 of \d+ runs are kept.*; the same command with out={tmp_path / 'one'} goes on"
    assert re.search(kept, capsys.readouterr().err.splitlines()[-1])
    assert main([*command, f"out={tmp_path / 'one'}"]) == 0
    assert len(started) == len(runs)
    assert main([*command, f"out={tmp_path / 'two'}", "--jobs", "2"]) == 0
    assert len({(tmp_path / name / "table.csv").read_bytes() for name in ("one", "two")}) == 1
    assert len(load_sweep(tmp_path / "one")) == len(runs)
    ran = len(started)
    capsys.readouterr()
    assert main([*command, f"out={tmp_path / 'one'}"]) == 0
    assert len(started) == ran
    assert f"note: {runs.whole_notes[0]}\n" in capsys.readouterr().out
    assert main(["sweep", "status", str(tmp_path / "one")]) == 0
    assert f"{len(runs)} of {len(runs)} runs done, 0 failed, 0 left" in capsys.readouterr().out


def test_a_width_is_in_points_and_another_is_one_line_before_anything_runs(nothing_runs):
    assert [check_until(words) for words in ("2 points", " .5points", None)] == [0.02, 0.005, float("inf")]
    expected = "until=.*: expected half the width of an interval, above 0 up to 50, such as"
    for words in ("2%", "points", "0 points", "51 points", 2):
        assert re.match(expected, refusal(swept, words))
