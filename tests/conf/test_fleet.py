"""Fleets: a profile for each replica, replicas that only read prompts, and the link by which caches move."""

import re

import pytest

from specsim import iterations, load_run, simulate
from specsim.config.configured import from_words
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.drafter import without_drafter
from specsim.latency.profile import load_profile, profile_from_mapping
from specsim.metrics.requests import SPLIT_COLUMNS
from specsim.runs.plan import checked
from specsim.runs.prepare import prepare
from tests.made import refusal

H100, A100 = "llama8b_1b_h100", "llama8b_1b_a100"
BASE = ("trace=poisson", "requests=6", "scheduler=continuous")
MIXED = f"replica_profiles=[{H100},{H100},{A100}]"


def chosen(*words):
    (found,) = from_words([*BASE, *words], sweep=False)
    return found


def test_a_fleet_of_one_profile_by_name_is_that_many_replicas_byte_for_byte(tmp_path):
    more = {"trace": "poisson", "rps": 9, "requests": 12, "passes": True, "router": "least_tokens"}
    for name, fleet in {
        "plain": {"profile": H100, "replicas": 3},
        "named": {"replica_profiles": [H100, H100, H100]},
    }.items():
        simulate("adaserve", out=tmp_path / name, **more, **fleet)  # type: ignore[arg-type]
    for file in ("requests.parquet", "passes.parquet", "metrics.json"):
        assert (tmp_path / "plain" / file).read_bytes() == (tmp_path / "named" / file).read_bytes()


def test_each_replica_has_the_time_and_the_memory_of_its_profile():
    made = prepare(chosen(MIXED, "engine=profiled")).simulation
    assert (made.replicas, len(made.hardware)) == (3, 3)
    for machine, name in zip(made.hardware, (H100, H100, A100), strict=True):
        profile = without_drafter(load_profile(name))
        assert machine.truth == machine.cost_model == profile
        assert machine.memory.capacity_bytes == profile.usable_kv_bytes
    assert made.hardware[0].truth is made.hardware[1].truth
    tight = f"profile={H100}", "profile.memory_bytes=18e9", "trace=poisson"
    plain, drafting = (from_words([f"scheduler={each}", *tight], sweep=False)[0] for each in ("vllm", "vllm_spec"))
    assert prepare(plain).simulation.memory.capacity_bytes == 16_200_000_000 - 16_060_522_496, "the target's weights"
    assert "leave no memory" in refusal(prepare, drafting)
    told = read_yaml(shipped("conf") / "profile" / f"{H100}.yaml") | {"usable_kv_bytes_alone": 7 * 10**9}
    assert without_drafter(profile_from_mapping(told, "mine")).usable_kv_bytes == 7 * 10**9


def test_the_first_profile_says_the_baseline_the_engine_and_what_else_it_suggests():
    first, other = (chosen(f"replica_profiles={each}") for each in (f"[{H100},{A100}]", f"[{A100},{H100}]"))
    assert first.chosen.profile.name == H100
    assert (first.settings.replicas, first.settings.replica_profiles) == (2, (H100, A100))
    coding = [prepare(each).simulation.requests.tpot_slo_s.min() for each in (first, other)]
    baselines = [prepare(each).profiles[0].baseline_s for each in (first, other)]
    assert coding == pytest.approx([1.2 * each for each in baselines])
    assert baselines[0] < baselines[1]
    (note,) = [each for each in prepare(first).notes if "baseline" in each]
    said = f"ratios of objectives are multiples of the first replica's baseline latency: profile={H100}"
    assert note.startswith(said)
    assert not [each for each in prepare(chosen(f"replica_profiles=[{H100},{H100}]")).notes if "baseline" in each]


def test_files_of_your_own(tmp_path):
    text = (shipped("conf") / "profile" / f"{A100}.yaml").read_text().replace(f"name: {A100}", "name: mine")
    (tmp_path / "mine.yaml").write_text(text)
    found = chosen(f"replica_profiles=[{H100},{tmp_path}/mine.yaml]")
    assert prepare(found).simulation.hardware[1].truth.name == "mine"  # type: ignore[attr-defined]
    said = refusal(chosen, f"replica_profiles=[{H100},{tmp_path}/none.yaml]")
    assert re.search(r"replica_profiles=.*none\.yaml", said)
    other = tmp_path / "fp8.yaml"
    other.write_text(text.replace("kv_bytes_per_token: 131072", "kv_bytes_per_token: 65536"))
    fleet = f"replica_profiles=[{H100},{other}]"
    checked([chosen(fleet)])
    said = refusal(checked, [chosen(fleet, "split.prefill=1", "split.link_gb_per_s=50")])
    assert "the target's cache takes 65536 or 131072 bytes per token" in said, "caches of another layout cannot move"


def test_a_fleet_is_a_run_of_its_own_and_can_be_made_again():
    keys = [chosen(each).key for each in (MIXED, f"replica_profiles=[{H100},{H100},{H100}]")]
    assert keys[0] != keys[1]
    run = simulate("continuous", "poisson", requests=6, replica_profiles=[H100, A100])
    assert len(iterations(run, [0])) == 1
    facts = run.provenance["profile"], *run.provenance["other_profiles"]
    assert [each["name"] for each in facts] == [H100, A100]


def test_a_run_tells_what_moved(tmp_path):
    settings = {"profile": H100, "replicas": 3, "split__prefill": 1, "split__link_gb_per_s": 10, "requests": 40}
    run = simulate("continuous", "poisson", rps=4, router="least_tokens", out=tmp_path / "run", passes=True, **settings)  # type: ignore[arg-type]
    stored = load_run(tmp_path / "run")
    told, rows = stored.metrics["specsim"]["split"], stored.requests
    assert list(SPLIT_COLUMNS) == [name for name in rows.columns if name.startswith("split.")]
    wanted = 131072 * rows["prompt_tokens"]
    assert (rows["split.moved_bytes"] == wanted.where(rows["output_tokens"] > 1, 0)).all()
    assert told["moved_bytes"] == rows["split.moved_bytes"].sum()
    assert told["requests_by_prefill_replica"] == [40, 0, 0]
    assert told["moved_requests"] == int((rows["output_tokens"] > 1).sum())
    assert told["mean_moving_s"] == pytest.approx(rows["split.moving_s"].mean())
    assert told["p99_moving_s"] >= told["mean_moving_s"]
    assert set(rows["replica"][rows["output_tokens"] > 1]) == {1, 2}
    assert run.metrics["specsim"]["router"] == "least_tokens"
    assert run.metrics["specsim"]["gpus"] == 3
    assert run.metrics["specsim"]["output_throughput_per_gpu"] == pytest.approx(run.metrics["output_throughput"] / 3)
    assert (rows["ttft_s"] > rows["split.moving_s"].fillna(0)).all()
    assert len(iterations(run, [0])) == 1


def test_each_pool_has_a_router_of_its_own():
    fleet = {"router": "dedicated", "replicas": 6, "split__prefill": 3, "split__link_gb_per_s": 50}
    rows = simulate("continuous", "poisson", requests=30, **fleet).requests  # type: ignore[arg-type]
    moved = rows[rows["output_tokens"] > 1]
    assert (moved["replica"] - 3 == moved["split.prefill_replica"]).all()
    assert moved.groupby("slo_class")["replica"].nunique().max() == 1
