"""`specsim compare`: settings that differ, numbers side by side, and intervals where the requests are the same."""

import json

import numpy as np
import pandas as pd
import pytest

from specsim import load_sweep, simulate, sweep
from specsim.cli import main
from specsim.store.comparing import ComparedRun, compare_served
from specsim.store.summaries import Failure, append_row


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of the same 60 requests, and one of another seed."""
    root = tmp_path_factory.mktemp("runs")
    for name, scheduler, seed in (("a", "vllm", 0), ("b", "vllm_spec", 0), ("c", "vllm", 1)):
        simulate(scheduler, "poisson", requests=60, rps=6, seed=seed, out=root / name)
    return root


def lines_of(capsys, *places):
    assert main(["compare", *map(str, places)]) == 0
    return capsys.readouterr().out.splitlines()


def test_two_runs_have_intervals_by_request_where_their_requests_are_the_same(runs, capsys):
    said = lines_of(capsys, runs / "a", runs / "b")
    assert "scheduler: vllm | vllm_spec" in said
    assert not any(line.startswith("scheduler.") for line in said)
    assert "60 requests are the same: 95% intervals of differences by request (batch means)" in said
    row = next(line for line in said if line.startswith("mean TTFT"))
    one, other = (pd.read_parquet(runs / name / "requests.parquet")["ttft_s"].mean() for name in ("a", "b"))
    shown = [float(row.split()[place]) for place in (5, -1)]
    assert shown == pytest.approx([1000 * (other - one), 100 * (other / one - 1)], abs=0.1)
    assert "\u00b1" in row
    said = lines_of(capsys, runs / "a", runs / "c")
    assert "seed: 0 | 1" in said
    assert said[-1] == "the requests are not the same: differences have no intervals"
    assert not any("\u00b1" in line for line in said)


def test_of_runs_with_a_warm_up_the_requests_that_count_are_compared(tmp_path, capsys):
    for name in ("vllm", "vllm_spec"):
        run = simulate(name, "poisson", requests=60, rps=6, warmup="50%", out=tmp_path / name)
    said = f"{run.metrics['completed']} requests are the same: "
    assert any(line.startswith(said) for line in lines_of(capsys, tmp_path / "vllm", tmp_path / "vllm_spec"))


def test_the_interval_is_that_of_twenty_batch_means():
    """40 differences of 0 and 0.02 s in turns, by pairs: means of 0 and 0.02 s, deviation 0.01 * sqrt(20 / 19)."""
    frame = pd.DataFrame({"prompt_tokens": [5] * 40, "ttft_s": [1.0] * 40})
    later = frame.assign(ttft_s=1.0 + np.tile([0.0, 0.0, 0.02, 0.02], 10))
    sides = [ComparedRun({}, {"mean_ttft_ms": value}, rows) for value, rows in ((1000.0, frame), (1010.0, later))]
    (row,) = compare_served(*sides).rows
    assert (row.label, row.difference) == ("mean TTFT, ms", 10.0)
    assert row.half_width == pytest.approx(2.093024 * 10 * np.sqrt(20 / 19) / np.sqrt(20), rel=1e-6)


def test_a_run_and_the_benchmark_that_it_replays(runs, tmp_path, capsys):
    """The benchmark's first tokens come 10 ms later, for each request alike, written in another order."""
    rows = pd.read_parquet(runs / "a" / "requests.parquet").iloc[::-1]
    metrics = json.loads((runs / "a" / "metrics.json").read_text())
    result = {key: value for key, value in metrics.items() if key != "specsim"}
    result |= {"mean_ttft_ms": metrics["mean_ttft_ms"] + 10, "max_concurrency": 16, "request_rate": "inf"}
    result |= {
        "p99_e2el_ms": 10641.7,
        "input_lens": rows["prompt_tokens"].tolist(),
        "output_lens": rows["output_tokens"].tolist(),
    }
    result |= {"ttfts": (rows["ttft_s"] + 0.01).tolist(), "start_times": rows["arrival_s"].tolist()}
    result["itls"] = [[each] for each in (rows["finish_s"] - rows["first_token_s"]).tolist()]
    (tmp_path / "bench.json").write_text(json.dumps(result))
    said = lines_of(capsys, runs / "a", tmp_path / "bench.json")
    assert "concurrency: none | 16" in said
    assert next(line for line in said if line.startswith("p99 E2E")).split()[4] == "10642"
    found = {line.split(", ms")[0]: line.split()[-4:] for line in said if ", ms" in line}
    assert (float(found["mean TTFT"][0]), float(found["mean TTFT"][2])) == (10.0, pytest.approx(0, abs=1e-9))
    assert (float(found["mean TPOT"][0]), float(found["mean TPOT"][2])) == (0.0, pytest.approx(0, abs=1e-9))


def test_what_a_benchmark_states_is_held_against_what_a_run_at_its_own_rate_did(tmp_path, capsys):
    trace = pd.DataFrame({"arrival_s": np.arange(60) / 2, "prompt_tokens": 512, "output_tokens": 20})
    simulate("vllm_spec", trace, out=tmp_path / "run", scheduler__num_speculative_tokens=3)
    result = {"request_rate": 12.0, "completed": 30, "total_input_tokens": 300, "request_throughput": 9.0}
    (tmp_path / "bench.json").write_text(json.dumps(result))
    *differ, untold = lines_of(capsys, tmp_path / "run", tmp_path / "bench.json")[2:7]
    assert differ[:2] == ["rps: 2 | 12", "requests: 60 | 30"]
    assert differ[2:] == ["mean prompt tokens: 512 | 10", "draft tokens a step: 3 | none"]
    assert untold == "not compared: mean output tokens, model, server, spread of arrivals"


def test_two_sweeps_are_paired_by_seed_at_the_points_of_both(runs, tmp_path, capsys, refused):
    small = {"trace": "poisson", "requests": 60, "progress": False}
    for name, scheduler, rates in (("a", "vllm", [4, 8]), ("b", "vllm_spec", [8, 10])):
        sweep({"rps": rates, "seed": range(4)}, scheduler=scheduler, out=tmp_path / name, **small)
    said = lines_of(capsys, tmp_path / "a", tmp_path / "b")
    assert "scheduler: vllm | vllm_spec" in said
    assert said[-1] == "differences are paired by seed, with 95% intervals from 5 seeds on; 8 runs have no partner"
    assert not any("\u00b1" in line for line in said)
    (row,) = (line for line in said if line.startswith("8 ") and "mean TPOT" in line)
    tables = [load_sweep(tmp_path / name).table.query("rps == 8 and slo_class == 'all'") for name in ("a", "b")]
    means = [1000 * table.mean_tpot_s.mean() for table in tables]
    shown = [float(row.split()[place]) for place in (4, 5, 6)]
    assert shown == pytest.approx([*means, means[1] - means[0]], rel=1e-2)
    assert "is a sweep, the other is none" in refused("compare", str(runs / "a"), "a")
    sweep({"rps": [8], "seed": [0, 1]}, scheduler="vllm", out=tmp_path / "c", **small | {"requests": 30})
    append_row(tmp_path / "c", Failure({**load_sweep(tmp_path / "c")[0].config, "seed": 2}, {}, "no memory", "failed"))
    next((tmp_path / "c").glob("*seed=1*/requests.parquet")).unlink()
    *rows, said, damaged, failed = lines_of(capsys, tmp_path / "a", tmp_path / "c")
    assert all(each in damaged for each in ("note: B: left out: ", "seed=1", "requests.parquet is missing"))
    assert f"{said}; {failed}".endswith("7 runs have no partner; note: B: 1 of 2 runs failed and is left out")
    assert not any("\u00b1" in row for row in rows)


def test_what_cannot_be_compared_is_one_line(runs, tmp_path, refused):
    (tmp_path / "two.json").write_text('{"completed": 1, "request_throughput": 2.0}\n' * 2)
    several = refused("compare", str(runs / "a"), "two.json")
    assert "two.json: 2 results, 0 with the load of the run (rps 6, without drafts); expected one" in several
    assert "no run folder" in refused("compare", str(runs / "a"), "none")


def test_of_several_results_the_one_with_the_load_of_the_run_is_meant(tmp_path, capsys):
    settings = {"requests": 40, "concurrency": 4, "out": tmp_path / "run", "progress": False}
    metrics = simulate("vllm_spec", "poisson", **settings).metrics
    own = {key: value for key, value in metrics.items() if key != "specsim"} | {"request_rate": "inf"}
    plain = {key: value for key, value in own.items() if not key.startswith("spec_decode")}
    results = [own | {"max_concurrency": 8}, own | {"max_concurrency": 4}, plain | {"max_concurrency": 4}]
    (tmp_path / "bench.jsonl").write_text("\n".join(map(json.dumps, results)))
    said = lines_of(capsys, tmp_path / "run", tmp_path / "bench.jsonl")
    assert next(line for line in said if line.startswith("mean TPOT")).split()[-2:] == ["+0", "+0.0"]
    assert said[1].endswith("bench.jsonl, result 2 of 3 (concurrency 4)")
    assert said[2] == "nothing that both tell differs by more than 5%"
