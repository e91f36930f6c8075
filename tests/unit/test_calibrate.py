"""`specsim calibrate`: from points of a server to an engine file, its held-out error and a figure.

Loads are replayed without events: their times are a run's.
"""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from specsim import simulate
from specsim.calibration.fit import Fit, halved
from specsim.calibration.reading import MeasuredPoint, MeasuredServer, read_points
from specsim.calibration.replay import BenchLoad, Door
from specsim.calibration.replay import served as replayed
from specsim.cli import main
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.engine import Batches, Engine
from specsim.latency.profile import load_profile
from tests.made import refusal

NAME = "llama8b_1b_h100"
PROFILE = load_profile(NAME)
SERVER = MeasuredServer(PROFILE)
TRUE = Engine(overhead_s=6e-4, request_s=2e-5)
LOADS = tuple(
    BenchLoad(isl, osl, clients, 4 * clients) for isl in (256, 900) for osl in (16, 60) for clients in (1, 3, 8, 20, 50)
)


@cache
def served(engine, loads=LOADS):
    """Return what a server that is the engine itself would be measured at."""
    return [each.simulated for each in SERVER.simulated([MeasuredPoint(load, 1.0, 1.0) for load in loads], engine)]


def frame(points):
    rows = [(*each.load[:4], 1e3 * each.ttft_s, 1e3 * each.tpot_s) for each in points]
    return pd.DataFrame(rows, columns=["isl", "osl", "concurrency", "requests", "ttft_ms", "tpot_ms"])


@pytest.fixture
def csv(tmp_path):
    file = tmp_path / "points.csv"
    frame(served(TRUE)).to_csv(file, index=False)
    return file


def command(*words):
    engine = [] if "--engine" in words else ["--engine", "profiled"]
    return ["calibrate", *map(str, words), "--profile", NAME, *engine]


def test_the_launch_of_the_drafter_is_found_beside_the_host_time():
    """Chains of two lengths tell the launch from what a verification of drafts costs."""
    true = replace(TRUE, draft_launch_s=4e-3, speculation_s=1e-3)
    loads = tuple(
        BenchLoad(isl, osl, clients, 4 * clients, drafts=drafts, acceptance_length=1 + drafts / 4)
        for isl, osl in ((256, 30), (900, 61))
        for clients in (1, 4, 16)
        for drafts in (0, 2, 5)
    )
    points = served(true, loads)
    found = Fit(SERVER, Engine()).engine(points)
    assert (found.overhead_s, found.request_s) == pytest.approx((6e-4, 2e-5), rel=1e-6)
    assert (found.draft_launch_s, found.speculation_s) == pytest.approx((4e-3, 1e-3), rel=0.01)
    assert max(abs(each.tpot_error) for each in Fit(SERVER, Engine()).held_out(points)) < 2e-3
    one = Fit(SERVER, replace(Engine(), speculation_s=1e-3)).engine([each for each in points if each.load.drafts != 2])
    assert one.draft_launch_s == pytest.approx(4e-3, rel=0.01)
    hidden = served(replace(TRUE, draft_launch_s=1e-5), loads)
    assert Fit(SERVER, Engine()).engine(hidden).draft_launch_s == 0, "it lies behind the drafter's kernels"


@pytest.mark.parametrize(("key", "cell"), [("length", 2.5), ("rate", 0.5), ("rates", "0.8;0.5;0.2")])
def test_a_point_says_what_its_drafts_bring(key, cell, tmp_path):
    file = tmp_path / "points.csv"
    frame(served(TRUE)[:1]).assign(num_speculative_tokens=3, **{f"acceptance_{key}": cell}).to_csv(file, index=False)
    (point,) = read_points([file], 1).points
    assert (point.load.drafts, point.load.acceptance_length) == pytest.approx((3, 2.5))


def test_the_host_time_is_found_from_open_loops():
    """The longer passes take, the more requests they hold: the fit ends where both agree."""
    rates = tuple(BenchLoad(isl, 40, 0, 60, 1.0, rate) for isl in (256, 900) for rate in (0.5, 2.0, 8.0, 16.0))
    points = served(Engine(overhead_s=2e-3, request_s=5e-5), rates)
    found = Fit(SERVER, Engine()).engine(points)
    assert (found.overhead_s, found.request_s) == pytest.approx((2e-3, 5e-5), rel=0.02)
    faster = Fit(SERVER, Engine()).engine([each._replace(tpot_s=each.tpot_s / 2) for each in points])
    assert (faster.overhead_s, faster.request_s) == (0, 0), "no dust at the bound of what is searched"
    assert [round(each.in_flight, 1) for each in points[:4]] == sorted(round(each.in_flight, 1) for each in points[:4])


@pytest.mark.slow
def test_the_way_in_is_found_from_ttft():
    found = Fit(SERVER, Engine(), whole=True).engine(served(replace(TRUE, pipeline_steps=1, frontend_s=1e-2)))
    assert (found.pipeline_steps, found.frontend_s) == (1, 1e-2)
    assert found.overhead_s == pytest.approx(6e-4, rel=0.05)


def test_no_point_is_held_against_an_engine_that_saw_it():
    """One point is made three times as slow: the engine of its own half changes, that which it is held against not."""
    fit, points = Fit(SERVER, Engine()), served(TRUE)
    odd = points[0]._replace(tpot_s=3 * points[0].tpot_s)
    held = fit.held_out([odd, *points[1:]])
    assert held[0].simulated.tpot_s == pytest.approx(points[0].tpot_s)
    assert [each.measured for each in held] == [odd, *points[1:]]


@pytest.mark.parametrize("clients", [(4, 16, 64), (8,)])
@pytest.mark.parametrize("lengths", [3, 15])
def test_each_half_has_every_concurrency_and_every_length(clients, lengths):
    points = [MeasuredPoint(BenchLoad(256 + isl, 60, each, 64), 1.0, 1.0) for isl in range(lengths) for each in clients]
    one, other = halved(points)
    assert sorted(one + other) == points
    assert abs(len(one) - len(other)) <= 1
    for half in (one, other):
        assert {each.load.concurrency for each in half} == set(clients)
        if len(clients) > 1:
            assert len({each.load.isl for each in half}) == lengths


@pytest.mark.usefixtures("unrendered")
def test_without_an_engine_that_of_the_profile_is_taken(csv, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("specsim.runs.processes.LINE_S", 0)
    assert main(["calibrate", str(csv), "--profile", NAME, "--out", str(tmp_path / "mine.yaml")]) == 0
    assert "\n2 loads simulated\n" in capsys.readouterr().err, "in a pipe a line now and then counts them"
    keys = read_yaml(tmp_path / "mine.yaml")
    assert (keys["pipeline_steps"], keys["graph_tokens"]) == (1, [1, 2, 4])
    assert "from engine vllm_0_15" in keys["source"]


def test_what_is_there_is_replaced_only_by_force(csv, tmp_path, refused):
    out = tmp_path / "mine.yaml"
    out.write_text("mine")
    assert "is there; expected another name, or --force" in refused(*command(csv, "--out", out))
    assert out.read_text() == "mine"
    assert main(command(csv, "--out", out, "--force")) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine.png", "mine.yaml", "points.csv"]


def result(place=0, **more):
    """Return what `vllm bench serve --save-result --max-concurrency N` writes of a point."""
    load, ttft_s, tpot_s = served(TRUE)[place]
    told = {"date": "20260101-000000", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": load.requests}
    told |= {"request_rate": "inf", "max_concurrency": load.concurrency, "completed": load.requests, "failed": 0}
    told |= {"total_input_tokens": load.requests * load.isl, "total_output_tokens": load.requests * load.osl}
    return told | {"mean_ttft_ms": 1e3 * ttft_s, "mean_tpot_ms": 1e3 * tpot_s} | more


def test_points_are_read_alike_from_every_form_of_a_table_and_from_results_of_vllm_bench_serve(tmp_path):
    points, told = served(TRUE), frame(served(TRUE))
    told.to_csv(tmp_path / "semicolons.csv", index=False, sep=";")
    told.to_parquet(tmp_path / "plain.parquet")
    told.to_json(tmp_path / "table.json", orient="records", double_precision=15)
    seconds = told.assign(ttft_s=told.ttft_ms / 1e3, tpot_s=told.tpot_ms / 1e3, concurrency=told.concurrency * 1.0)
    seconds.drop(columns=["ttft_ms", "tpot_ms"]).to_csv(tmp_path / "seconds.csv", index=False)
    for place, no_rate in enumerate(("inf", float("inf"), None)):
        told.assign(request_rate=no_rate).to_csv(tmp_path / f"{place}.csv", index=False)
        told.assign(request_rate=no_rate).to_parquet(tmp_path / f"{place}.parquet")
    results = [json.dumps(result(place)) + "\n" for place in range(len(points))]
    (tmp_path / "appended.json").write_text("".join(results))
    files = [[each] for each in tmp_path.iterdir()]
    files.append([tmp_path / f"result-{place}" for place in range(len(results))])
    for file, content in zip(files[-1], results, strict=True):
        file.write_text(content)
    for given in files:
        read = read_points(given, 1).points
        assert [each.load for each in read] == list(LOADS), given
        assert [each[1:] for each in read] == [pytest.approx(each[1:]) for each in points]


def test_results_at_a_rate_are_open_loops_and_lengths_that_vary_and_failed_requests_are_told(tmp_path):
    file = tmp_path / "r.json"
    at_a_rate = result(max_concurrency=None, request_rate=2.5, burstiness=1.0, output_lens=[16, 0])
    file.write_text(json.dumps(at_a_rate))
    assert not read_points([file], 1).notes, "a request that failed has no length"
    file.write_text("\n".join(map(json.dumps, (at_a_rate, result(failed=3, input_lens=[200, 300])))))
    ((one, *_), (other, *_)), _, notes = read_points([file], 1)
    assert (one[2:4], one.rate, one.sent, other.concurrency, other.rate) == ((0, 4), 2.5, "rate 2.5", 1, 0.0)
    assert all(said in note for said, note in zip(("3 requests failed", "lengths vary"), notes, strict=True))
    requests = {"input_lens": [9, 8], "output_lens": [7, 6], "start_times": [5.0, 3.5]}
    file.write_text(json.dumps(at_a_rate | {"completed": 2} | requests))
    assert read_points([file], 1).points[0].load[8:] == (((8, 6), (9, 7)), (0.0, 1.5))
    file.write_text(json.dumps(at_a_rate | {"completed": 2} | requests | {"start_times": None}))
    assert ["no start_times" in note for note in read_points([file], 1).notes] == [True]


def test_results_of_one_load_that_vllm_bench_sweep_repeats_are_a_point(tmp_path):
    rates = {"spec_decode_acceptance_rate": 50, "spec_decode_per_position_acceptance_rates": [0.5]}
    runs = [result(**rates, run_number=run, mean_tpot_ms=5.0 + run) for run in (0, 1)]
    runs = [each | {"spec_decode_acceptance_length": 1.4 + place / 10} for place, each in enumerate(runs)]
    (file := tmp_path / "summary.json").write_text(json.dumps(runs))
    (warmup := tmp_path / "warmup.json").write_text(json.dumps(result(run_number=-1, completed=0)))
    (point,), _, notes = read_points([warmup, file], 1)
    assert (point.tpot_s, point.load.acceptance_length) == (pytest.approx(0.0055), pytest.approx(1.45))
    assert notes[0] == f"{warmup}: result 1: left out, a warm-up (run_number below 0)"
    assert notes[1:] == ["2 results: the repetitions of a load make one point, their mean"]
    for place, again in ((2, [*runs, runs[1]]), (1, [result(), result(run_number=0)])):
        file.write_text(json.dumps(again))
        assert f"summary.json: result {place} too; expected each load once" in refusal(read_points, [file], 1)


BAD = [
    (lambda t: t.drop(columns="isl"), "no column isl; expected isl, osl, concurrency or rate, ttft_ms and tpot_ms"),
    (lambda t: t.rename(columns={"isl": "ils"}), "did you mean 'ils'?"),
    (lambda t: t.rename(columns={"tpot_ms": "tpot"}), "column tpot: no unit; expected tpot_ms or tpot_s"),
    (lambda t: t.assign(concurrency=None, rate=""), "concurrency or rate not given; expected clients"),
    (lambda t: t.assign(tpot_ms=float("nan")), "tpot_ms '' is not a number"),
    (lambda t: t.assign(concurrency=1.5), "concurrency '1.5' is not a whole number"),
    (lambda t: t[[*t.columns, "isl"]], "line 1: column 'isl' is there twice"),
    (lambda t: t.assign(tp_size=4), "tp_size 4, and the profile is of 1"),
    (lambda t: pd.concat([t, t[:1]]), "isl 256, osl 16, concurrency 1 stands at"),
    (lambda t: t[:14], "expected at least 15, half of which are held out; with fewer, `specsim compare"),
    (lambda t: t.assign(concurrency=8, requests=80, isl=range(256, 276)), "every point has concurrency 8"),
    (lambda t: t.assign(isl=range(400_000, 400_020)), "4 points whose caches fit, of 20; expected at least 15"),
    (lambda t: t.assign(k=3), "line 2: 3 draft tokens with no acceptance"),
    (lambda t: t.assign(k=3, acceptance_length=4.5), "acceptance_length 4.5: 3 draft tokens bring 1 to 4 tokens"),
    (lambda t: t.assign(acceptance_length=2.5), "without draft tokens; expected num_speculative_tokens"),
    (lambda t: t.assign(k=3, acceptance_rates="0.7;0.8;0.8"), "acceptance_rates 0.7;0.8;0.8: expected 3 shares"),
]
BAD_RESULTS = [
    ({"max_concurrency": None}, "result 1: no max_concurrency and request_rate inf: requests at once or"),
    ({"request_rate": 4.0}, "result 1: request_rate 4.0 and max_concurrency 1; expected one of them"),
    ({"request_rate": 4.0, "max_concurrency": None, "burstiness": 0.5}, "result 1: burstiness 0.5; expected 1"),
    ({"start_times": [0.5, None]}, "result 1: start_times: expected a number each"),
    ({"completed": 0, "input_lens": [], "output_lens": []}, "result 1: completed 0; expected requests that were"),
    ({"spec_decode_acceptance_rate": 61.2}, "spec_decode_acceptance_rate, but no spec_decode_per_position"),
]


@pytest.mark.parametrize(("change", "said"), BAD + BAD_RESULTS)
def test_bad_points_are_one_line(change, said, tmp_path, refused):
    made = change(frame(served(TRUE))).to_csv(index=False) if callable(change) else json.dumps(result(**change))
    (tmp_path / "points").write_text(made)
    assert said in refused(*command("points", "--out", "mine.yaml"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "vllm_0_16"], "engine=vllm_0_16: unknown; did you mean"),
        (["--out", "mine.txt"], "--out mine.txt: expected a file whose name ends with .yaml"),
        (["--out", "nowhere/mine.yaml"], "no such folder nowhere"),
    ],
)
def test_bad_words_are_one_line(words, said, csv, refused):
    assert said in refused(*command(csv, *words))


@pytest.mark.usefixtures("unrendered")
def test_points_beyond_the_memory_are_left_out_and_told(tmp_path, capsys):
    told = frame(served(TRUE))
    told.loc[len(told)] = [60_000, 100, 20, 40, 1e4, 50]
    told.astype({"isl": int, "osl": int, "concurrency": int, "requests": int}).to_csv(tmp_path / "p.csv", index=False)
    assert main(command(tmp_path / "p.csv", "--out", tmp_path / "mine.yaml")) == 0
    said = capsys.readouterr().out
    assert said.startswith("note: left out, 1 of 21 points: their caches do not fit")
    assert "overhead_s 0.0006, request_s 2e-05" in said
    assert main(command(tmp_path / "p.csv", "--all", "--engine", "sglang_0_5", "--out", tmp_path / "more.yaml")) == 0
    assert ", pipeline_steps " in capsys.readouterr().out
    assert read_yaml(tmp_path / "more.yaml")["pipeline_steps"]["speculating"] == 0
    engines = [replace(TRUE, large_batches=Batches(reserves=each)) for each in ("prompt", "estimate", "max_tokens")]
    assert [SERVER.fits(BenchLoad(200, 2000, 0, 400, rate=10.0), each) for each in engines] == [True, False, False]
    composed, load = load_profile("qwen3_8b_eagle3_h100"), BenchLoad(200, 10, 1, 1, drafts=3, acceptance_length=2.0)
    assert MeasuredServer(composed).cache_tokens(load, TRUE) == composed.usable_kv_tokens, "as a run's pool"


@pytest.mark.usefixtures("unrendered")
def test_a_wrong_unit_is_told(csv, tmp_path, capsys):
    told, out = pd.read_csv(csv), tmp_path / "mine.yaml"
    assert main(command(csv, "--out", out)) == 0
    assert "note:" not in capsys.readouterr().out
    told.rename(columns={"tpot_ms": "tpot_s", "ttft_ms": "ttft_s"}).to_csv(csv, index=False)
    assert main(command(csv, "--out", out, "--force")) == 0, "host time explains it"
    said = capsys.readouterr().out
    assert said.startswith("note: host time is 100% of TPOT (median), more than the kernels'; check")
    assert "TPOT is" not in said
    told.assign(tpot_ms=told.tpot_ms / 1e3).to_csv(csv, index=False)
    assert main(command(csv, "--out", out, "--force")) == 4
    said = capsys.readouterr().out
    assert "note: no host time was found: the profile's passes alone take as long as was measured" in said
    assert "TTFT was not fitted: --all" in said
    assert "check the profile's GPU and model, the unit of the points" in said
    misfit = read_yaml(out)["misfit"]
    assert misfit.startswith("the median held-out error of TPOT is ")
    assert f"note: not fit for use: {misfit}" in said
    said = refusal(simulate, "sarathi", "poisson", profile=NAME, engine=str(out), requests=5)
    assert said == f"engine={out}: not fit for use: {misfit}; expected another engine, or any_fit=true"
    run = simulate("sarathi", "poisson", profile=NAME, engine=str(out), requests=5, any_fit=True)
    assert any(misfit in note for note in run.provenance["notes"])


@pytest.mark.slow
def test_the_docs_show_what_the_command_prints(tmp_path, monkeypatch, capsys):
    root = shipped("conf").parent
    _, _, told = (root / "docs" / "engines.md").read_text(encoding="utf-8").partition("$ specsim calibrate ")
    words, _, shown = told.partition("mine.yaml\n")
    (tmp_path / "docs").symlink_to(root / "docs")
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *f"{words}mine.yaml".replace("\\\n", " ").split()]) == 0
    assert shown.partition("$ ")[0] == capsys.readouterr().out
    assert simulate("continuous", "poisson", requests=5, engine="./mine.yaml").requests.finish_s.notna().all()


ENGINES = [
    Engine(overhead_s=0.0),
    Engine(overhead_s=9.3e-4, request_s=4.5e-5, graph_tokens=tuple(range(8, 513, 8))),
    Engine(overhead_s=4e-5, request_s=1.4e-5, pipeline_steps=1, frontend_s=5.2e-3),
]


def simulated(scheduler, trace, engine, *keys, **settings):
    """Return a run of the trace on the profile and on these keys of the engine."""
    told = {f"engine__{key}": getattr(engine, key) for key in keys}
    return simulate(scheduler, trace, profile=NAME, engine="profiled", **told, **settings)


LISTED = (0, 0, 0, 3, 1.0, 20.0, 0, 1.0, ((900, 20), (300, 1), (5000, 9)), (0.0, 0.01, 0.4))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "load", [(5000, 10, 3, 9), (1000, 30, 16, 48), (900, 40, 7, 21, 0.6), (700, 30, 0, 60, 1.0, 20.0), LISTED]
)
@pytest.mark.parametrize("scheduler", ["sarathi", "continuous"])
def test_a_loop_takes_what_a_run_takes(load, engine, scheduler):
    """The same clients in a whole simulation, whose scheduler mixes chunks or reads prompts first, under one budget.

    In the first load a prompt is longer than the budget; the last is what a result lists of its requests.
    """
    load = BenchLoad(*load)
    isl, osl = load.lengths()
    arrival_s = load.arrival_s() if load.rate else 0.0
    trace = pd.DataFrame({"arrival_s": arrival_s, "prompt_tokens": isl, "output_tokens": osl})
    settings = {"engine__graph_tokens": [8], "engine__graph_step": 8} if engine.graph_tokens else {}
    settings |= {"scheduler__max_num_batched_tokens": 2048, "concurrency": load.concurrency or None}
    run = simulated(scheduler, trace, engine, "overhead_s", "request_s", "pipeline_steps", "frontend_s", **settings)
    ttft_s = (run.requests.first_token_s - run.requests.arrival_s).mean()
    tpot_s = ((run.requests.finish_s - run.requests.first_token_s) / (osl - 1))[osl > 1].mean()
    target = engine.running(PROFILE).target
    model = target if engine.frontend_s or load.rate else None
    door = Door(engine.pipeline_steps, engine.frontend_s, model, prompts_first=scheduler == "continuous")
    loop = replayed(load, 2048, door)
    assert loop.latencies(target) == pytest.approx((ttft_s, tpot_s), rel=1e-12)
    bare = replace(engine, overhead_s=0.0, request_s=0.0).running(PROFILE).target
    priced = [cost.seconds(engine.overhead_s or 0.0, engine.request_s) for cost in loop.costs(bare)]
    assert priced == pytest.approx([ttft_s, tpot_s], rel=1e-12)


@pytest.mark.parametrize(("acceptance", "alpha", "near"), [("bernoulli", 0, 0.02), ("llama8b_eagle3", None, 0.05)])
def test_a_loop_with_drafts_takes_about_what_a_run_takes(acceptance, alpha, near):
    """Both draw how often the drafts of each request are right; the loop knows the mean length alone."""
    trace = pd.DataFrame({"arrival_s": 0.0, "prompt_tokens": [1000] * 96, "output_tokens": 200})
    engine = Engine(overhead_s=1e-3, request_s=5e-5, draft_launch_s=4e-3)
    settings = {"acceptance": acceptance, "scheduler__num_speculative_tokens": 3, "concurrency": 16}
    settings |= {} if alpha is None else {"acceptance__alpha": alpha}
    run = simulated("vllm_spec", trace, engine, "overhead_s", "request_s", "draft_launch_s", **settings)
    load = BenchLoad(1000, 200, 16, 96, drafts=3, acceptance_length=run.metrics["spec_decode_acceptance_length"])
    running = engine.running(PROFILE)
    ttft_s, tpot_s = replayed(load, 8192).latencies(running.target, running.draft)
    assert tpot_s == pytest.approx(run.metrics["mean_tpot_ms"] / 1e3, rel=0.02)
    assert ttft_s == pytest.approx(run.metrics["mean_ttft_ms"] / 1e3, rel=near)
    captured = replace(engine, graph_tokens=(1, 2, 8, 16), graph_multiples=True)
    assert MeasuredServer(PROFILE, 8192).running(captured, load).target.graph_tokens == (4, 8, 16)


def test_arrivals_at_a_rate_end_when_they_should():
    arrival_s = BenchLoad(100, 10, 0, 500, rate=4.0).arrival_s()
    assert arrival_s[-1] == pytest.approx(125.0)
    gaps = np.diff(arrival_s)
    assert ((gaps > 0).all(), gaps.std() / gaps.mean()) == (True, pytest.approx(1.0, abs=0.1))
