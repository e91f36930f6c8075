"""From words to plain configurations: sweeps, both spellings, paths for all groups and the keys below them."""

import shutil

import pytest

from specsim.config.configured import from_words
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
def made(tmp_path, monkeypatch):
    """Copy one file of each group into a folder, under names of their own."""
    monkeypatch.chdir(tmp_path)
    for group, name in ORIGINALS.items():
        shutil.copy(shipped("conf") / group / f"{name}.yaml", tmp_path / f"{group}.yaml")
    (tmp_path / "trace.csv").write_text(ROWS)
    return tmp_path


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


@pytest.mark.parametrize(
    "name",
    ["Jörg é.csv", "a=b.csv", "a (1).csv", "it's.csv", "a#1.csv", "~a.csv"],
)
def test_a_path_may_hold_what_file_names_hold(made, name):
    (made / "sub").mkdir()
    (made / "trace.csv").rename(made / "sub" / name)
    experiment = prepare(chosen(f"trace=./sub/{name}", "profile=llama8b_1b_h100"))
    assert len(experiment.simulation.requests) == 3


def test_a_file_may_write_numbers_as_the_shipped_ones_do(made):
    """YAML 1.1 reads 1e-3 as text, Hydra as a number: one file must mean one thing."""
    text = (made / "profile.yaml").read_text()
    assert "overhead_s: 0.0011731" in text
    (made / "profile.yaml").write_text(text.replace("overhead_s: 0.0011731", "overhead_s: 1e-3"))
    assert plain("profile=./profile.yaml")["profile"]["target"]["overhead_s"] == 0.001


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
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_objectives_that_are_set_are_those_of_the_requests(made, words, ttft_s, tpot_s):
    """Two mixes promise coding a multiple of the profile's baseline; it is left out."""
    given = {word.partition("=")[0] for word in words}
    experiment = prepare(chosen(*words, *(["trace=poisson", "requests=200"] if "trace" not in given else [])))
    requests = experiment.simulation.requests
    assert set(requests.ttft_slo_s.tolist()) == ttft_s
    assert set(requests.tpot_slo_s.tolist()) - {1.2 * experiment.profiles[0].baseline_s} == tpot_s


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["rps='2'"], ["rps=2"]),
        (["requests=100.0"], ["requests=100"]),
        (["warmup='[0, 5]'"], ["warmup=[0,5]"]),
        (['+scheduler="fcfs"'], ["scheduler=fcfs"]),
        (["++rps=2"], ["rps=2"]),
        (["scheduler.shape={width_max: 2.0}"], ["scheduler.shape.width_max=2"]),
        (["scheduler=choice(fcfs)"], ["scheduler=fcfs"]),
    ],
    ids=lambda words: words[0],
)
def test_spellings_of_one_setting(words, same):
    """The configurations print alike, too: a run's config.yaml does not tell 1e3 from 1000."""
    assert str(plain(*words)) == str(plain(*same))


def test_a_list_is_set_by_place_too():
    points_of = plain("trace=adaserve_fig8", "trace.points.0.point=9")["trace"]["points"]
    assert [each["point"] for each in points_of[:2]] == [9, 2.6]


def test_a_file_may_repeat_a_key_of_its_own(made):
    text = (made / "scheduler.yaml").read_text()
    (made / "scheduler.yaml").write_text(text + "copy: ${.max_num_seqs}\n")
    assert plain("scheduler=./scheduler.yaml", "scheduler.max_num_seqs=9")["scheduler"]["copy"] == 9
