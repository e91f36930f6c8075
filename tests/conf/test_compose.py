"""From words to plain configurations: values, spans, both spellings, paths for all groups and the keys below them."""

import shutil

import pytest

from specsim.config.configured import from_words
from specsim.config.groups import names
from specsim.config.points import points
from specsim.config.values import _parsed, fitting, value_of
from specsim.files.yaml_file import shipped
from specsim.runs.prepare import prepare

ORIGINALS = {
    "scheduler": "continuous",
    "slo": "adaserve",
    "acceptance": "llama70b_1b",
    "profile": "llama8b_1b_h100",
    "drafter": "lookup",
    "engine": "vllm_0_12",
    "router": "dedicated",
}
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
    experiment = prepare(chosen(f"trace=./sub/{name}", "profile=llama8b_1b_h100"))
    assert len(experiment.simulation.requests) == 3


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
        ("rps='2'", "rps=2"),
        ("requests=100.0", "requests=100"),
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


def test_a_file_may_repeat_a_key_of_its_own(made):
    text = (made / "scheduler.yaml").read_text()
    (made / "scheduler.yaml").write_text(text + "copy: ${.max_num_seqs}\n")
    assert plain("scheduler=./scheduler.yaml", "scheduler.max_num_seqs=9")["scheduler"]["copy"] == 9


def swept(word):
    ((key, *_),) = {tuple(point) for point in points([word], sweep=True)}
    return [point[key] for point in points([word], sweep=True)]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("rps=2,3", ["2", "3"]),
        ("rps=choice(2,3)", ["2", "3"]),
        ("rps=range(1,5)", ["1", "2", "3", "4"]),
        ("rps=range(5,1,-2)", ["5", "3"]),
        ("rps=range(0.1,0.5,0.1)", ["0.1", "0.2", "0.3", "0.4"]),
        ("rps=sort(3,1,2)", ["1", "2", "3"]),
        ("rps=tag(mine,choice(1,2))", ["1", "2"]),
        ("warmup=[0,5],[5,9]", ["[0,5]", "[5,9]"]),
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
    assert len(swept("scheduler=glob(smart*)")) > 3
    rest = swept("scheduler=glob(*,exclude=[fcfs,las])")
    assert rest == [name for name in names("scheduler") if name not in ("fcfs", "las")]
    assert swept("trace=glob([azure*,poisson])") == ["azure_code", "azure_conv", "poisson"]
    assert swept("profile=glob(llama8b_1b*,exclude=*a100)") == ["llama8b_1b_h100", "llama8b_1b_h200"]


@pytest.mark.parametrize(
    ("text", "old", "value"),
    [
        ("'5'", 1, 5),
        ("'5'", "name", "5"),
        ("'5'", "${seed}", 5),
        ("'5'", None, 5),
        ("'true'", False, True),
        ("'[1,2]'", None, [1, 2]),
        ("~/x.py", [], "~/x.py"),
        ("{a: ~/x}", {}, {"a": "~/x"}),
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
