"""From words to plain configurations and sweeps: values, spellings, paths and the keys below them, files of sweeps."""

import shutil

import numpy as np
import pytest

from specsim.config.compose import compose
from specsim.config.configured import from_file, from_point, from_words
from specsim.config.groups import names
from specsim.config.identity import identity, settings_of
from specsim.config.points import points
from specsim.config.sweep_file import points_of
from specsim.config.values import _parsed, fitting, value_of
from specsim.files.yaml_file import shipped
from specsim.runs.plan import checked
from specsim.runs.prepare import prepare
from tests.made import refusal

ORIGINALS = {"scheduler": "continuous", "slo": "adaserve", "acceptance": "llama70b_1b", "profile": "llama8b_1b_h100"}
ORIGINALS |= {"drafter": "lookup", "engine": "vllm_0_12", "router": "dedicated"}
ROWS = "arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.5,20,4\n2.0,30,5\n"


@pytest.fixture
def made(here):
    """Copy one file of each group into a folder, under names of their own."""
    for group, name in ORIGINALS.items():
        shutil.copy(shipped("conf") / group / f"{name}.yaml", here / f"{group}.yaml")
    (here / "trace.csv").write_text(ROWS)
    return here


def chosen(*words):
    (found,) = from_words(words, sweep=False)
    return found


def plain(*words):
    return chosen(*words).config


def meant(*words):
    """Return the configuration without what was typed to choose it."""
    return {key: value for key, value in plain(*words).items() if key not in ("choices", "followed")}


@pytest.mark.parametrize("group", ORIGINALS)
def test_a_file_by_path_is_the_group_by_name(made, group):
    by_name = meant(f"{group}={ORIGINALS[group]}")
    for path in (f"./{group}.yaml", f"{group}.yaml", f"{made / group}.yaml"):
        assert meant(f"{group}={path}") == by_name


@pytest.mark.parametrize(
    "word",
    [
        "scheduler.max_num_seqs=8",
        "profile.target.overhead_s=1e-3",
        "profile.target.valid.context_tokens=[0, 9]",
        "acceptance.categories.default={agreement: 0.5, concentration: 1, spread: 0.5, tail: 0.5}",
        "slo.source=off",
    ],
)
def test_a_key_below_a_path_means_what_it_means_below_a_name(made, word):
    group = word.partition(".")[0]
    assert meant(f"{group}=./{group}.yaml", word) == meant(f"{group}={ORIGINALS[group]}", word)


@pytest.mark.parametrize("name", ["Jörg é.csv", "a=b.csv", "a (1).csv", "it's.csv", "a#1.csv", "~a.csv"])
def test_a_path_may_hold_what_file_names_hold(made, name):
    (made / "sub").mkdir()
    (made / "trace.csv").rename(made / "sub" / name)
    assert len(prepare(chosen(f"trace=./sub/{name}", "profile=llama8b_1b_h100")).simulation.requests) == 3


@pytest.mark.parametrize("word", ["plugins=[~/mine.py]", "plugins=~/mine.py", "plugins=['~/mine.py']"])
def test_a_plugin_may_lie_in_a_home_folder(made, monkeypatch, word):
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.chdir("/")
    (made / "mine.py").write_text("from specsim.schedulers.fcfs import Fcfs\n\n\nclass Mine(Fcfs):\n    pass\n")
    prepare(chosen("scheduler=fcfs", "scheduler._target_=mine.Mine", word, "requests=2", "trace=poisson"))


@pytest.mark.parametrize(
    ("words", "ttft_s", "tpot_s"),
    [
        (["slo=./slo.yaml", "slo.classes.chat={ttft_s: 0.2, tpot_s: 0.04}"], {0.2, 2.0}, {0.04, 0.15}),
        (["slo=specserve", "slo.classes.request.ttft_s=0.3", "slo.classes.request.tpot_s=0.04"], {0.3}, {0.04}),
        (["trace=adaserve_fig8", "slo.ttft_s=0.7"], {0.7}, {0.036, 0.05, 0.15}),
        (["trace=./trace.csv", "slo=trace", "slo.tpot_s=0.05", "slo.ttft_s=3"], {3.0}, {0.05}),
    ],
    ids=str,
)
def test_objectives_that_are_set_are_those_of_the_requests(made, words, ttft_s, tpot_s):
    """Two mixes promise coding a multiple of the profile's baseline; it is left out."""
    given = {word.partition("=")[0] for word in words}
    experiment = prepare(chosen(*words, *(["trace=poisson", "requests=200"] if "trace" not in given else [])))
    requests = experiment.simulation.requests
    assert set(requests.ttft_slo_s.tolist()) == ttft_s
    assert set(requests.tpot_slo_s.tolist()) - {1.2 * experiment.profiles[0].baseline_s} == tpot_s


@pytest.mark.parametrize(
    ("word", "same"),
    [
        *(("rps='2'", "rps=2"), ("requests=100.0", "requests=100")),
        ("warmup='[0, 5]'", "warmup=[0,5]"),
        ('+scheduler="fcfs"', "scheduler=fcfs"),
        ("++rps=2", "rps=2"),
        ("scheduler.shape={width_max: 2.0}", "scheduler.shape.width_max=2"),
        ("scheduler=choice(fcfs)", "scheduler=fcfs"),
    ],
)
def test_spellings_of_one_setting(word, same):
    """The configurations print alike, too: a run's config.yaml does not tell 1e3 from 1000."""
    assert str(plain(word)) == str(plain(same))


def test_a_list_is_set_by_place_too():
    points_of = plain("trace=adaserve_fig8", "trace.points.0.point=9")["trace"]["points"]
    assert [each["point"] for each in points_of[:2]] == [9, 2.6]


def swept(word):
    ((key, *_),) = {tuple(point) for point in points([word], sweep=True)}
    return [point[key] for point in points([word], sweep=True)]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        *((f"rps={word}", ["2", "3"]) for word in ("2,3", "choice(2,3)")),
        *(("rps=range(1,5)", ["1", "2", "3", "4"]), ("rps=range(5,1,-2)", ["5", "3"])),
        *(("rps=range(0.1,0.5,0.1)", ["0.1", "0.2", "0.3", "0.4"]), ("rps=sort(3,1,2)", ["1", "2", "3"])),
        *(("rps=tag(mine,choice(1,2))", ["1", "2"]), ("warmup=[0,5],[5,9]", ["[0,5]", "[5,9]"])),
        ("scheduler=fcfs, las", ["fcfs", "las"]),
        ("+scheduler=choice('fcfs', continuous)", ["fcfs", "continuous"]),
        ("trace=choice(./my first.csv,'b (2).csv',poisson)", ["./my first.csv", "b (2).csv", "poisson"]),
        ("trace=./a(1).csv,./b=2.csv", ["./a(1).csv", "./b=2.csv"]),
    ],
)
def test_what_a_word_spans(word, values):
    assert swept(word) == values


def test_glob_picks_among_the_names_of_a_group_as_in_hydra():
    assert swept("scheduler=glob(smart*)") == [name for name in names("scheduler") if name.startswith("smart")]
    assert len(checked(from_words(["scheduler=glob(vllm*)", "trace=poisson", "requests=9"], sweep=True))) == 3
    words = ["scheduler=glob(*,exclude=[fcfs,las])", "any_fit=true", "trace=poisson", "requests=9"]
    assert len(checked(from_words(words, sweep=True))) > 40, "the examples of docs/command-line.md"
    rest = swept("scheduler=glob(*,exclude=[fcfs,las])")
    assert rest == [name for name in names("scheduler") if name not in ("fcfs", "las")]
    assert swept("trace=glob([azure*,poisson])") == ["azure_code", "azure_conv", "poisson"]
    assert swept("profile=glob(llama8b_1b*,exclude=*a100)") == ["llama8b_1b_h100", "llama8b_1b_h200"]


@pytest.mark.parametrize(
    ("text", "old", "value"),
    [
        *(("'5'", 1, 5), ("'5'", "name", "5"), ("'5'", None, 5), ("'true'", False, True)),
        *(("'[1,2]'", None, [1, 2]), ("~/x.py", [], "~/x.py"), ("{a: ~/x}", {}, {"a": "~/x"})),
        ('{"1-16": 3, \'b\': [{"c.d": 1}]}', {}, {"1-16": 3, "b": [{"c.d": 1}]}),
        ("'{\"a\": 1}'", "x", '{"a": 1}'),
    ],
)
def test_what_a_text_means_in_the_place_of_another_value(text, old, value):
    assert fitting("key=", text, old) == value


NUMBERS = "0 -0 7 -12 007 +7 1_000 123456789012345 1e3 2.0 0.5 -0.25 3.14159 -0.0 00.5 1. .5 0.000001 1.0e3 1.5_0"


@pytest.mark.parametrize("text", [*NUMBERS.split(), "9" * 40])
def test_a_number_is_what_hydra_reads(text):
    read = _parsed("rps=", text).value()
    assert (value_of("rps=", text), type(value_of("rps=", text))) == (read, type(read))


def written(folder, text):
    file = folder / "sweep.yaml"
    file.write_text(text)
    return file


def texts(folder, text, *words):
    return [
        {key: str(value) for key, value in point.items()} for point in points_of(written(folder, text), list(words))
    ]


def test_a_grid_is_the_words_of_a_multirun(tmp_path):
    file = "run: {trace: poisson, requests: 9}\ngrid: {scheduler: [fcfs, continuous], rps: 'range(1,3)'}\nseeds: 2\n"
    words = ["trace=poisson", "requests=9", "scheduler=fcfs,continuous", "rps=range(1,3)", "seed=0,1"]
    found, typed = from_file(written(tmp_path, file), []), from_words(words, sweep=True)
    assert ([each.config for each in found], len(found)) == ([each.config for each in typed], 8)


def test_zipped_values_stand_side_by_side(tmp_path):
    found = texts(tmp_path, "zip: {rps: [1, 2], replicas: [2, 4]}\ngrid: {seed: '3,5'}\n")
    assert [" ".join(point.values()) for point in found] == ["3 1 2", "3 2 4", "5 1 2", "5 2 4"]


def test_drawn_points_stay_when_more_are_drawn_and_lie_in_their_bounds(tmp_path):
    text = "random: {{points: {}, seed: {}, draw: {{rps: 'interval(1,8)', replicas: 'int(interval(1,3))', {}}}}}\n"
    more = "slo_scale: 'tag(log, interval(0.01,1))', requests: [5, 7]"
    few, many = (texts(tmp_path, text.format(count, 0, more)) for count in (5, 200))
    assert many[:5] == few
    assert texts(tmp_path, text.format(5, 1, more)) != few
    assert {point["replicas"] for point in many} == {"1", "2", "3"}
    assert {point["requests"] for point in many} == {"5", "7"}
    rates = [float(point["rps"]) for point in many]
    assert 1 <= min(rates) < 1.5 < 7.5 < max(rates) <= 8
    scales = sorted(float(point["slo_scale"]) for point in many)
    assert scales[0] >= 0.01
    assert 0.05 < scales[100] < 0.2
    few = texts(tmp_path, "random: {points: 4, draw: {replicas: [1, 2], seed: '0,1'}}\n")
    assert len({tuple(point.values()) for point in few}) == 4, "none is drawn twice"
    # A key's values do not depend on which other keys are drawn.
    alone = texts(tmp_path, "random: {points: 200, draw: {rps: 'interval(1,8)'}}\n")
    assert [point["rps"] for point in alone] == [point["rps"] for point in many]


TWICE = "grid: {rps: [1, 2]}"
WRONG = {
    TWICE: "grid: rps is given on the command line, too; expected it once",
    "grids: {rps: [1]}": "grids: unknown key; did you mean 'grid'?",
    "grid: {rps: 1}": "grid.rps: 1 is not a list of values, or a text such as range(1,5)",
    "grid: {rps: 'range(1'}": "grid.rps: rps=range(1: ",
    "grid: {rps: [1], seed: [1]}\nseeds: 2": "seeds: seed stands in grid, too; expected it once",
    "zip: {rps: [1, 2], replicas: [1]}": "zip: rps has 2, replicas has 1; expected as many values of each key",
    "seeds: 0": "seeds: 0 is not how many, or a list of whole numbers",
    "random: {points: 3, draw: {}}": "random.draw: expected at least one setting, such as rps: interval(1,8)",
    "random: {points: 0, draw: {rps: 'interval(1,2)'}}": "random.points: 0 is not a whole number",
    "random: {points: 3, draw: {rps: 'interval(2,1)'}}": "random.draw.rps: rps=interval(2,1): expected two numbers",
    "random: {points: 3, draw: {rps: 'tag(log, interval(0,1))'}}": "expected two numbers above 0, the smaller first",
    "random: {points: 3, draw: {replicas: [1, 2]}}": "random.points: 3 is more than the 2 different points",
    "grid: {seed: 'range(0,10000)', requests: 'range(1,10000)'}": "grid: spans 99,990,000 points; expected at most",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_in_a_sweep_s_file_is_a_line_that_names_file_and_key(tmp_path, text):
    file = written(tmp_path, text)
    said = refusal(points_of, file, ["rps=3"] if text == TWICE else [])
    assert said.startswith(f"{file}: ")
    assert WRONG[text] in said


def test_points_share_the_files_that_their_settings_leave_alone():
    """A sweep of ten thousand points holds each file once."""
    one, other = from_words(["trace=poisson", "seed=0,1", "scheduler.max_num_seqs=8"], sweep=True)
    assert one.config["profile"] is other.config["profile"]
    assert one.config["scheduler"] is not other.config["scheduler"]


POISSON = {"trace": "poisson", "requests": "60"}
FIXED = {
    "trace.prompt_tokens": "{distribution: fixed, mean: 9, cv: null, low: null, high: null}",
    "trace.output_tokens": "{distribution: uniform, mean: null, cv: null, low: 7, high: 7}",
}
CODE = {"trace": "azure_code", "requests": "60"}
CLASSED = {"trace": "adaserve_fig8", "requests": "60"}
RESAMPLED, ONE = {"trace.resample": "20"}, {"slo": "specserve"}
DRAWN, ALL = ("classes", "acceptance"), ("arrivals", "lengths", "classes", "acceptance")
POINTS = {
    "recorded": (CODE, DRAWN),
    "recorded, one class": (CODE | ONE, ("acceptance",)),
    "recorded, its own classes": (CLASSED, ("acceptance",)),
    "recorded, its own classes, a mix": (CLASSED | {"slo": "adaserve"}, ("acceptance",)),
    "recorded, its own classes, a mix that deals them anew": (CLASSED | {"slo": "./mix.yaml"}, DRAWN),
    "a file": ({"trace": "./plain.csv"}, DRAWN),
    "a file that names classes": ({"trace": "./classed.csv"}, ("acceptance",)),
    "resampled": (CODE | RESAMPLED, ALL),
    "resampled, one class": (CODE | RESAMPLED | ONE, ("arrivals", "lengths", "acceptance")),
    "resampled, its own classes": (CLASSED | RESAMPLED, ALL),
    "synthetic": (POISSON, ALL),
    "synthetic, one class": (POISSON | ONE, ("arrivals", "lengths", "acceptance")),
    "synthetic, lengths fixed": (POISSON | FIXED, ("arrivals", "classes", "acceptance")),
}


@pytest.fixture
def files(here):
    shares = "{coding: {share: 0.5, tpot_s: 0.03}, chat: {share: 0.5, tpot_s: 0.05}}"
    (here / "mix.yaml").write_text(f"max_tokens: 64\nredraw_classes: true\nclasses: {shares}\n")
    for name, column in (("plain", ""), ("classed", ",slo_class")):
        classes = ("coding", "chat", "summarization") * 20
        lines = [f"{i},5,5" + (f",{name}" if column else "") for i, name in enumerate(classes)]
        (here / f"{name}.csv").write_text("\n".join([f"arrival_s,prompt_tokens,output_tokens{column}", *lines]))


def drawn(point, seed):
    """Return what the seed may change of a prepared simulation, as bytes by name."""
    simulation = prepare(from_point({**point, "seed": str(seed)})).simulation
    told, ground_truth = simulation.requests, simulation.ground_truth
    return {
        "arrivals": told.arrival_s.tobytes(),
        "lengths": np.stack((told.prompt_tokens, ground_truth.output_tokens)).tobytes(),
        "classes": told.slo_class.tobytes(),
        "acceptance": ground_truth.acceptance_trace.keys.tobytes(),
    }


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", POINTS)
def test_what_is_said_to_vary_is_what_varies(name):
    point, varies = POINTS[name]
    first, second = (drawn(point, seed) for seed in (0, 1))
    assert varies == tuple(each for each in first if first[each] != second[each])
    assert varies == prepare(from_point(point)).varies


ONE_POINT = {"trace": "poisson", "scheduler": "vllm_spec"}


def identity_of(**words):
    return identity(settings_of(compose({**ONE_POINT, **words})))


def test_an_order_a_default_said_a_type_of_number_a_null_key_or_its_place_changes_nothing():
    config = compose(ONE_POINT)
    other = dict(reversed(config.items())) | {"out": "somewhere", "new_key": None}
    assert (settings_of(other), identity(settings_of(other))) == (settings_of(config), identity_of())
    assert identity_of(slo_scale="1.0", replicas="1") == identity_of(slo_scale="1") == identity_of()
    assert identity_of(rps="2") == identity_of(rps="2.0")
    own = config | {"choices": dict.fromkeys(config["choices"], "a.yaml"), "cost_model": {"name": "a.yaml"}}
    labels = {key: {**own[key], "description": "mine"} for key in (*config["choices"], "cost_model")}
    assert settings_of(own | labels) == settings_of(own)
    a100 = {"profile": {**own["profile"], "hardware": "A100"}}  # An engine's limits follow it.
    assert settings_of(own | a100) != settings_of(own)


@pytest.mark.parametrize(
    "key", ["passes=true", "scheduler.num_speculative_tokens=5", "scheduler=fcfs", "cost_model=llama8b_1b_h100"]
)
def test_every_setting_counts(key):
    name, _, value = key.partition("=")
    assert identity_of(**{name: value}) != identity_of()
