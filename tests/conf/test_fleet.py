"""`replica_profiles`: one profile a replica, by name or by path, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim import iterations, simulate
from specsim.config.configured import from_words
from specsim.config.identity import identity, settings_of
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.latency.profile import load_profile
from specsim.runs.prepare import prepare

H100, A100 = "llama8b_1b_h100", "llama8b_1b_a100"
BASE = ("trace=poisson", "requests=6", "scheduler=continuous")
MIXED = f"replica_profiles=[{H100},{H100},{A100}]"


def config(*words: str) -> dict[str, object]:
    ((_, found),) = from_words([*BASE, *words], sweep=False)
    return found


def test_a_fleet_of_one_profile_by_name_is_that_many_replicas_byte_for_byte(tmp_path: Path) -> None:
    more = {"trace": "poisson", "rps": 9, "requests": 12, "passes": True, "router": "least_tokens"}
    for name, fleet in {
        "plain": {"profile": H100, "replicas": 3},
        "named": {"replica_profiles": [H100, H100, H100]},
    }.items():
        simulate("adaserve", out=tmp_path / name, **more, **fleet)  # type: ignore[arg-type]
    for file in ("requests.parquet", "passes.parquet", "metrics.json"):
        assert (tmp_path / "plain" / file).read_bytes() == (tmp_path / "named" / file).read_bytes()


def test_each_replica_has_the_time_and_the_memory_of_its_profile() -> None:
    made = prepare(config(MIXED, "engine=profiled")).simulation
    assert (made.replicas, len(made.machines)) == (3, 3)
    for machine, name in zip(made.machines, (H100, H100, A100), strict=True):
        profile = load_profile(name)
        assert machine.truth == machine.belief == profile
        assert machine.memory.capacity_bytes == profile.usable_kv_bytes
    assert made.machines[0].truth is made.machines[1].truth


def test_the_first_profile_says_the_baseline_the_engine_and_what_else_it_suggests() -> None:
    first, other = (config(f"replica_profiles={each}") for each in (f"[{H100},{A100}]", f"[{A100},{H100}]"))
    assert first["choices"]["profile"] == H100  # type: ignore[index]
    assert (first["replicas"], first["replica_profiles"]) == (2, [H100, A100])
    coding = [prepare(each).simulation.requests.tpot_slo_s.min() for each in (first, other)]
    baselines = [prepare(each).profiles[0].baseline_s for each in (first, other)]
    assert coding == pytest.approx([1.2 * each for each in baselines])
    assert baselines[0] < baselines[1]
    (note,) = [each for each in prepare(first).notes if "baseline" in each]
    assert note.startswith(
        f"ratios of objectives are multiples of the first replica's baseline latency: profile={H100}"
    )
    assert not [each for each in prepare(config(f"replica_profiles=[{H100},{H100}]")).notes if "baseline" in each]


def test_files_of_your_own(tmp_path: Path) -> None:
    text = (shipped("conf") / "profile" / f"{A100}.yaml").read_text().replace(f'"{A100}"', '"mine"')
    (tmp_path / "mine.yaml").write_text(text)
    found = config(f"replica_profiles=[{H100},{tmp_path}/mine.yaml]")
    assert prepare(found).simulation.machines[1].truth.name == "mine"  # type: ignore[attr-defined]
    with pytest.raises(SpecsimError, match=r"replica_profiles=.*none\.yaml"):
        config(f"replica_profiles=[{H100},{tmp_path}/none.yaml]")


def test_a_fleet_is_a_run_of_its_own_and_can_be_made_again() -> None:
    keys = [identity(settings_of(config(each))) for each in (MIXED, f"replica_profiles=[{H100},{H100},{H100}]")]
    assert keys[0] != keys[1]
    run = simulate("continuous", "poisson", requests=6, replica_profiles=[H100, A100])
    assert len(iterations(run, [0])) == 1
    facts = run.provenance["profile"], *run.provenance["other_profiles"]
    assert [each["name"] for each in facts] == [H100, A100]
