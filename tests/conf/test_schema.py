"""The keys of a run are declared once, and what else names them says the same; each shipped file of conf/ composes."""

import re
from inspect import signature

import pytest

import specsim
from specsim.cli import main
from specsim.config.configured import from_point
from specsim.config.groups import choices, chosen_by_default
from specsim.config.points import ALSO
from specsim.config.schema import GROUPS, commented, declared, lines
from specsim.files.yaml_file import shipped
from specsim.metrics.tables import WIDTH
from specsim.runs.prepare import prepare
from tools import keys


def test_the_page_of_keys_is_what_the_schema_declares():
    assert keys.PAGE.read_text(encoding="utf-8") == keys.page(), "python -m tools.keys writes it"


@pytest.mark.parametrize("function", [specsim.simulate, specsim.sweep, specsim.find, specsim.tune])
def test_the_keys_are_keywords_of_python(function):
    shown, usual = signature(function).parameters, chosen_by_default()
    for each in declared():
        assert each.name == "out" or shown[each.name.replace(".", "__")].default == each.default
    assert set(GROUPS) <= set(shown)
    told = {group: f"str | Path | {also}" for group, also in ALSO.items()}
    assert {each: shown[each].annotation.removesuffix(" | None") for each in ALSO} == told
    assert (shown["cost_model"].annotation, shown["rps"].annotation) == ("str | Path | None", "float | None")
    own = signature(function.__wrapped__).parameters
    assert all(own[each.name].default is None for each in declared() if each.name in own), "a default is declared once"
    assert all(each.default in (each.empty, None, usual[name]) for name, each in own.items() if name in usual)


def test_a_shown_configuration_says_what_each_key_means():
    shown = "split:\n  prefill: null\nrps: null\nslo:\n  rps: 1\nplugins:\n- prefill: 1".splitlines()
    said = lines()
    first = ["split:", f"  prefill: null  # {said['split.prefill']}", f"rps: null  # {said['rps']}", "slo:", "  rps: 1"]
    assert list(commented(shown)) == [*first, f"plugins:  # {said['plugins']}", "- prefill: 1"]


NAMES = {group: sorted(path.stem for path in (shipped("conf") / group).glob("*.yaml")) for group in GROUPS}
ELSEWHERE = {"profile": "test_matching.py", "acceptance": "test_matching.py"}
"""Groups of which every file has a run of its own there."""
CASES = [(group, name) for group in GROUPS for name in NAMES[group] if name != "file" and group not in ELSEWHERE]
SMALL = {"trace": "poisson", "requests": "3", "acceptance": "bernoulli", "profile": "llama8b_1b_h100"}
pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.mark.parametrize(
    ("group", "name"),
    [pytest.param(*each, marks=pytest.mark.slow) if each[0] == "scheduler" else each for each in CASES],
)
def test_every_file_composes_and_prepares_a_run(group, name):
    # Every scheduler is built from its file in test_scheduler_yaml.py.
    point = {**SMALL, "any_fit": "true", group: name}
    if (group, name) == ("slo", "trace"):
        point["trace"] = "adaserve_fig8"
    if group == "router":
        point["replicas"] = "3"
    experiment = prepare(from_point(point))
    assert len(experiment.simulation.requests) == 3
    assert callable(experiment.simulation.scheduler().step)


@pytest.fixture
def listed(capsys):
    """Return a function that gives the lines of `specsim list`."""

    def lines(*kind):
        assert main(["list", *kind]) == 0
        return capsys.readouterr().out.splitlines()

    return lines


def test_list_prints_a_line_for_each_name_and_of_profiles_a_table_for_each_gpu(listed):
    for kind, group in ("schedulers", "scheduler"), ("acceptance", "acceptance"):
        lines = listed(kind)
        assert [line.split()[0] for line in lines] == list(choices(group))
        assert all(line.endswith(said) for line, said in zip(lines, choices(group).values(), strict=True))
    lines = listed("profiles")
    assert max(map(len, lines)) <= WIDTH
    heads = [line for line in lines if line.endswith("GPUs  error")]
    assert any(line.startswith("NVIDIA B200  ") for line in heads)
    rows = [re.split("  +", line) for line in lines[:-1] if line not in heads]
    assert sorted(name for name, *_ in rows) == list(choices("profile"))
    assert ["llama8b_1b_h100", "Llama-3.1-8B + Llama-3.2-1B", "vLLM 0.24.0", "1", "4.1%"] in rows
    assert rows[1] == ["adaserve_artifact_llama70b", "Llama-3.1-70B + Llama-3.2-1B", "the artifact's scripts", "8", "-"]


def test_list_without_a_kind_prints_all_eight(listed):
    lines = listed()
    heads = [line for line in lines if not line.startswith(" ")]
    assert " ".join(heads) == "schedulers: traces: profiles: slo: acceptance: drafters: engines: routers:"
    named = {name for group in GROUPS for name in NAMES[group] if name != "file"}
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= named
