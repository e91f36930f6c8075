"""From words to plain configurations: sweeps, both spellings, paths for all groups and the keys below them."""

import shutil

import pytest
import yaml

from specsim.config import compose
from specsim.errors import SpecsimError
from specsim.experiment import prepare
from specsim.paths import is_path, shipped
from specsim.points import GROUPS, points

ORIGINALS = {
    "scheduler": "continuous",
    "slo": "adaserve",
    "acceptance": "llama70b_1b",
    "profile": "llama8b_1b_h100",
    "drafter": "lookup",
}
ROWS = "arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.5,20,4\n2.0,30,5\n"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Copy one file of each group into a folder, under names of their own."""
    monkeypatch.chdir(tmp_path)
    for group, name in ORIGINALS.items():
        shutil.copy(shipped("conf") / group / f"{name}.yaml", tmp_path / f"{group}.yaml")
    (tmp_path / "trace.csv").write_text(ROWS)
    return tmp_path


def plain(*words):
    (point,) = points(words, sweep=False)
    return compose(point)


def meant(*words):
    """Return the configuration without what was typed to choose it."""
    return {key: value for key, value in plain(*words).items() if key not in ("choices", "followed")}


def test_points_are_the_product_with_the_last_axis_fastest():
    found = points(["rps=2,3", "seed=1", "slo_scale=0.8,1.2"], sweep=True)
    assert found == [{"rps": rps, "seed": "1", "slo_scale": scale} for rps in ("2", "3") for scale in ("0.8", "1.2")]


def test_choices_are_kept_as_typed_and_the_rest_by_default(made):
    config = plain("scheduler=./scheduler.yaml", "trace=adaserve_fig8")
    assert config["choices"] == {
        "scheduler": "./scheduler.yaml",
        "trace": "adaserve_fig8",
        "slo": "trace",
        "acceptance": "llama70b_1b",
        "profile": "llama70b_1b_4xh100",
        "drafter": "separate",
    }


def test_a_list_is_one_value():
    assert points(["metrics.window=[0,5]"], sweep=False) == [{"metrics.window": "[0,5]"}]
    assert len(points(["metrics.window=[0,5],[5,9]"], sweep=True)) == 2


def test_nothing_said_gives_the_defaults():
    base = yaml.safe_load((shipped("conf") / "config.yaml").read_text())
    base.pop("defaults")
    config = plain()
    assert {key: config[key] for key in base} == base
    assert set(config) == {*base, *GROUPS, "choices", "followed"}


@pytest.mark.parametrize("group", GROUPS)
def test_both_spellings_of_a_group_are_the_same(group):
    name = {**ORIGINALS, "trace": "poisson"}[group]
    assert plain(f"{group}={name}") == plain(f"+{group}={name}")


@pytest.mark.parametrize("group", ORIGINALS)
def test_a_file_by_path_is_the_group_by_name(made, group):
    by_name = meant(f"{group}={ORIGINALS[group]}")
    for path in (f"./{group}.yaml", f"{group}.yaml", f"{made / group}.yaml"):
        assert meant(f"{group}={path}") == by_name


@pytest.mark.parametrize(
    "word",
    [
        "scheduler.max_requests=8",
        "scheduler.watermark=1e-3",
        "profile.form=linear",
        "profile.target.overhead_s=1e-3",
        "profile.target.valid.context_tokens=[0, 9]",
        "slo.classes.coding.tpot_ratio=1.5",
        "acceptance.categories.default.agreement=0.5",
        "acceptance.categories.default={agreement: 0.5, concentration: 1, spread: 0.5, tail: 0.5}",
        "acceptance.categories.default={agreement:0.5}",
        "slo.source=off",
        "slo.source='a b'",
    ],
)
def test_a_key_below_a_path_means_what_it_means_below_a_name(made, word):
    group = word.partition(".")[0]
    assert meant(f"{group}=./{group}.yaml", word) == meant(f"{group}={ORIGINALS[group]}", word)


def test_all_five_by_path_at_once_run_as_given(made):
    words = [f"{group}=./{group}.yaml" for group in ORIGINALS] + ["trace=./trace.csv", "scheduler.max_requests=2"]
    experiment = prepare(plain(*words))
    assert experiment.simulation.requests.prompt_tokens.tolist() == [10, 20, 30]
    assert experiment.simulation.scheduler().max_requests == 2
    assert experiment.source.origin == "file"


@pytest.mark.parametrize(
    "name",
    ["my trace.csv", "Jörg é.csv", "a=b.csv", "a (1).csv", "it's.csv", "a#1.csv", "50%.csv", "a:b.csv", "~a.csv"],
)
def test_a_path_may_hold_what_file_names_hold(made, name):
    (made / "sub").mkdir()
    (made / "trace.csv").rename(made / "sub" / name)
    experiment = prepare(plain(f"trace=./sub/{name}", "profile=llama8b_1b_h100"))
    assert len(experiment.simulation.requests) == 3


def test_a_swept_path_may_hold_a_space(made):
    for name in ("my first.csv", "my second.csv"):
        shutil.copy(made / "trace.csv", made / name)
    for point in points(["trace=./my first.csv,./my second.csv"], sweep=True):
        assert len(prepare(compose(point)).simulation.requests) == 3


def test_a_file_may_write_numbers_as_the_shipped_ones_do(made):
    """YAML 1.1 reads 1e-3 as text, Hydra as a number: one file must mean one thing."""
    text = (made / "profile.yaml").read_text()
    assert "overhead_s: 0.0011731" in text
    (made / "profile.yaml").write_text(text.replace("overhead_s: 0.0011731", "overhead_s: 1e-3"))
    assert plain("profile=./profile.yaml")["profile"]["target"]["overhead_s"] == 0.001


def test_a_home_folder_is_expanded(made, monkeypatch):
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.chdir("/")
    assert meant("profile=~/profile.yaml") == meant("profile=llama8b_1b_h100")
    assert len(prepare(plain("trace=~/trace.csv")).simulation.requests) == 3


def test_what_is_a_path():
    assert [each for each in ("a", "./a", "a.yaml", "a/b", "azure_code") if is_path(each)] == ["./a", "a.yaml", "a/b"]


def test_a_trace_may_bring_its_own_objectives_and_a_given_mix_wins(made):
    assert "classes" not in plain("trace=adaserve_fig8")["slo"]
    for words in (["trace=adaserve_fig8", "slo=adaserve"], ["slo=./slo.yaml", "trace=adaserve_fig8"]):
        assert set(plain(*words)["slo"]["classes"]) == {"coding", "chat", "summarization"}


def test_a_mistake_below_a_path_names_the_nearest_key(made):
    with pytest.raises(SpecsimError, match=r"scheduler\.max_request\b.*'max_requests'"):
        plain("scheduler=./scheduler.yaml", "scheduler.max_request=8")
    with pytest.raises(SpecsimError, match=r"profile\.target\.overhead_s\.x"):
        plain("profile=./profile.yaml", "profile.target.overhead_s.x=8")


def test_a_key_that_the_file_lacks_is_refused_by_path_and_by_name(made):
    for slo in ("slo=./slo.yaml", "slo=adaserve"):
        with pytest.raises(SpecsimError, match="ttft_s"):
            plain(slo, "slo.classes.chat.ttft_s=0.2")


def test_hydra_keeps_no_trace_of_a_composition():
    from hydra.core.global_hydra import GlobalHydra

    plain("seed=3")
    assert not GlobalHydra.instance().is_initialized()
