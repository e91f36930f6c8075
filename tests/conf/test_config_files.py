"""The shipped files of conf/: each composes, builds what it says, and lists every parameter, no more and no fewer."""

import pytest
import yaml

from specsim.cli import main
from specsim.config.compose import compose
from specsim.config.groups import choices
from specsim.config.schema import GROUPS
from specsim.files.yaml_file import shipped
from specsim.runs.prepare import prepare

NAMES = {group: sorted(path.stem for path in (shipped("conf") / group).glob("*.yaml")) for group in GROUPS}
CASES = [(group, name) for group in GROUPS for name in NAMES[group] if name != "file"]
SMALL = {
    "trace": "poisson",
    "requests": "3",
    "acceptance": "bernoulli",
    "profile": "llama8b_1b_h100",
    "any_target": "true",
}


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECSIM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def read(group, name):
    return yaml.safe_load((shipped("conf") / group / f"{name}.yaml").read_text())


@pytest.mark.parametrize(
    ("group", "name"),
    [pytest.param(*each, marks=pytest.mark.slow) if each[0] == "scheduler" else each for each in CASES],
)
def test_every_file_composes_and_prepares_a_run(group, name):
    # Every scheduler is built from its file in test_scheduler_yaml.py.
    point = {**SMALL, group: name}
    if (group, name) == ("slo", "trace"):
        point["trace"] = "adaserve_fig8"
    if group == "acceptance" and name.startswith("smollm2_lookup"):
        point["scheduler"] = "smartspec_lookup"  # A lookup makes one proposal a position, the default wants trees.
    if group == "router":
        point["replicas"] = "3"
    experiment = prepare(compose(point))
    assert len(experiment.simulation.requests) == 3
    assert callable(experiment.simulation.scheduler().step)


@pytest.mark.parametrize(("group", "name"), CASES)
def test_every_file_says_in_a_line_what_it_is(group, name):
    line = read(group, name)["description"]
    assert "\n" not in line
    assert 10 < len(line) <= 120
    assert choices(group)[name] == line


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_offers_its_files_but_not_the_stand_in_for_a_path(group):
    assert list(choices(group)) == [name for name in NAMES[group] if name != "file"]


@pytest.mark.parametrize(("group", "name"), [case for case in CASES if case[0] in ("trace", "profile")])
def test_a_file_carries_its_own_name(group, name):
    assert read(group, name)["name"] == name


def test_every_issue_wide_name_is_there():
    assert {"fcfs", "continuous", "sarathi", "vllm_spec", "adaserve"} <= set(NAMES["scheduler"])
    assert {"azure_code", "azure_conv", "mooncake_conversation", "mooncake_synthetic"} <= set(NAMES["trace"])
    assert {f"adaserve_fig{figure}" for figure in (8, 10, 11, 14, 15)} <= set(NAMES["trace"])
    assert {"poisson", "gamma", "bursts"} <= set(NAMES["trace"])
    assert {"adaserve", "specserve", "trace"} <= set(NAMES["slo"])
    assert {"separate", "lookup", "layers_skipped", "medusa", "eagle"} <= set(NAMES["drafter"])


def test_the_defaults_of_a_run_exist():
    base = yaml.safe_load((shipped("conf") / "config.yaml").read_text())
    chosen = {group: name for entry in base["defaults"] if isinstance(entry, dict) for group, name in entry.items()}
    assert set(chosen) == set(GROUPS)
    for group, name in chosen.items():
        assert name in choices(group)


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("schedulers", "scheduler"),
        ("traces", "trace"),
        ("profiles", "profile"),
        ("slo",) * 2,
        ("acceptance",) * 2,
        ("drafters", "drafter"),
        ("engines", "engine"),
        ("routers", "router"),
    ],
)
def test_list_prints_a_line_for_each_name(capsys, kind, group):
    assert main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(choices(group))
    for line, said in zip(lines, choices(group).values(), strict=True):
        assert line.endswith(said)


def test_list_without_a_kind_prints_all_eight(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "schedulers:",
        "traces:",
        "profiles:",
        "slo:",
        "acceptance:",
        "drafters:",
        "engines:",
        "routers:",
    ]
    assert sum(line.startswith("  ") for line in lines) == len(CASES)
