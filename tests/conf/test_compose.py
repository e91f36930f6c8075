"""From words to plain configurations: sweeps, both spellings, paths for all groups and the keys below them."""

import shutil

import pytest

from specsim.config.compose import compose
from specsim.config.points import points
from specsim.config.schema import GROUPS, defaults
from specsim.errors import SpecsimError
from specsim.files.yaml_file import is_path, shipped
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
        "engine": "vllm_0_15",
        "router": "round_robin",
    }


def test_a_list_is_one_value():
    assert points(["metrics.window=[0,5]"], sweep=False) == [{"metrics.window": "[0,5]"}]
    assert len(points(["metrics.window=[0,5],[5,9]"], sweep=True)) == 2


def test_nothing_said_gives_the_defaults():
    base = defaults()
    config = plain()
    assert {key: config[key] for key in base} == base | {"replicas": 4}, "the code trace suggests it"
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
        "scheduler.max_num_seqs=8",
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
    words = [f"{group}=./{group}.yaml" for group in ORIGINALS] + ["trace=./trace.csv", "scheduler.max_num_seqs=2"]
    experiment = prepare(plain(*words))
    assert experiment.simulation.requests.prompt_tokens.tolist() == [10, 20, 30]
    assert experiment.simulation.scheduler().batching.max_num_seqs == 2
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


@pytest.mark.parametrize("word", ["plugins=[~/mine.py]", "plugins=~/mine.py", "plugins=['~/mine.py']"])
def test_a_plugin_may_lie_in_a_home_folder(made, monkeypatch, word):
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.chdir("/")
    (made / "mine.py").write_text("from specsim.schedulers.fcfs import Fcfs\n\n\nclass Mine(Fcfs):\n    pass\n")
    prepare(plain("scheduler=fcfs", "scheduler._target_=mine.Mine", word, "requests=2", "trace=poisson"))


def test_a_home_folder_is_expanded(made, monkeypatch):
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.chdir("/")
    assert plain("out=~/runs/one")["out"] == str(made / "runs" / "one")
    assert plain("belief=~/profile.yaml")["belief"] == plain("profile=~/profile.yaml")["profile"]
    assert meant("profile=~/profile.yaml") == meant("profile=llama8b_1b_h100")
    assert len(prepare(plain("trace=~/trace.csv")).simulation.requests) == 3


def test_what_is_a_path():
    assert [each for each in ("a", "./a", "a.yaml", "a/b", "azure_code") if is_path(each)] == ["./a", "a.yaml", "a/b"]


def test_a_trace_may_bring_its_own_objectives_and_a_given_mix_wins(made):
    assert "classes" not in plain("trace=adaserve_fig8")["slo"]
    for words in (["trace=adaserve_fig8", "slo=adaserve"], ["slo=./slo.yaml", "trace=adaserve_fig8"]):
        assert set(plain(*words)["slo"]["classes"]) == {"coding", "chat", "summarization"}


def test_a_mistake_below_a_path_names_the_nearest_key(made):
    with pytest.raises(SpecsimError, match=r"scheduler\.max_request\b.*'max_num_seqs'"):
        plain("scheduler=./scheduler.yaml", "scheduler.max_request=8")
    with pytest.raises(SpecsimError, match=r"profile\.target\.overhead_s\.x"):
        plain("profile=./profile.yaml", "profile.target.overhead_s.x=8")


@pytest.mark.parametrize("slo", ["slo=./slo.yaml", "slo=adaserve"])
def test_a_mix_may_be_given_what_its_file_lacks(made, slo):
    classes = plain(slo, "slo.classes.chat.ttft_s=0.2", "slo.classes.coding.ttft_s=1")["slo"]["classes"]
    assert [classes[name].get("ttft_s") for name in ("chat", "coding", "summarization")] == [0.2, 1, None]


@pytest.mark.parametrize("slo", ["adaserve", "specserve", "trace"])
def test_any_mix_may_be_given_objectives_for_all_its_classes(slo):
    given = plain(f"slo={slo}", "slo.ttft_s=2", "slo.tpot_s=0.05")["slo"]
    assert (given["ttft_s"], given["tpot_s"]) == (2, 0.05)


def test_the_classes_of_a_trace_may_be_given_objectives_by_name():
    given = plain("trace=adaserve_fig8", "slo.classes.chat.ttft_s=0.2", "slo.classes.coding={tpot_s: 0.03}")["slo"]
    assert given["classes"] == {"chat": {"ttft_s": 0.2}, "coding": {"tpot_s": 0.03}}


@pytest.mark.parametrize("slo", ["slo=./slo.yaml", "slo=adaserve"])
@pytest.mark.parametrize(
    ("words", "coding"),
    [
        (["slo.classes.coding.tpot_s=0.03"], {"tpot_s": 0.03}),
        (["slo.classes.coding={tpot_s: 0.03}"], {"tpot_s": 0.03}),
        (["slo.classes={coding: {tpot_s: 0.03}}"], {"tpot_s": 0.03}),
        (["slo.classes.coding.tpot_ratio=1.5"], {"tpot_ratio": 1.5}),
        (["slo.classes.coding.tpot_s=null"], {"tpot_ratio": 1.2, "tpot_s": None}),
        (
            ["slo.classes.coding.tpot_s=0.03", "slo.classes.coding.tpot_ratio=2"],
            {"tpot_s": 0.03, "tpot_ratio": 2},
        ),
    ],
)
def test_an_objective_that_is_set_takes_the_place_of_the_files_other_form(made, slo, words, coding):
    """A class has a TPOT in seconds or as a ratio; both are the user's mistake, told by the reader of the mix."""
    found = plain(slo, *words)["slo"]["classes"]["coding"]
    assert {key: found[key] for key in found if key.startswith("tpot")} == coding


@pytest.mark.parametrize(
    ("words", "ttft_s", "tpot_s"),
    [
        (["slo=adaserve"], {2.0}, {0.05, 0.15}),
        (["slo=adaserve", "slo.ttft_s=1"], {1.0}, {0.05, 0.15}),
        (["slo=./slo.yaml", "slo.classes.chat.ttft_s=0.2"], {0.2, 2.0}, {0.05, 0.15}),
        (["slo=./slo.yaml", "slo.classes.chat={ttft_s: 0.2, tpot_s: 0.04}"], {0.2, 2.0}, {0.04, 0.15}),
        (["slo=specserve", "slo.classes.request.ttft_s=0.3", "slo.classes.request.tpot_s=0.04"], {0.3}, {0.04}),
        (["trace=adaserve_fig8", "slo.ttft_s=0.7"], {0.7}, {0.036, 0.05, 0.15}),
        (["trace=adaserve_fig8", "slo.classes.chat={ttft_s: 0.2, tpot_s: 0.04}"], {0.2, 2.0}, {0.036, 0.04, 0.15}),
        (["trace=adaserve_fig8", "slo.classes.coding.tpot_s=0.03"], {2.0}, {0.03, 0.05, 0.15}),
        (["trace=./trace.csv", "slo=trace", "slo.tpot_s=0.05", "slo.ttft_s=3"], {3.0}, {0.05}),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_objectives_that_are_set_are_those_of_the_requests(made, words, ttft_s, tpot_s):
    """Two mixes promise coding a multiple of the profile's baseline; it is left out."""
    given = {word.partition("=")[0] for word in words}
    experiment = prepare(plain(*words, *(["trace=poisson", "requests=200"] if "trace" not in given else [])))
    requests = experiment.simulation.requests
    assert set(requests.ttft_slo_s.tolist()) == ttft_s
    assert set(requests.tpot_slo_s.tolist()) - {1.2 * experiment.profiles[0].baseline_s} == tpot_s


def test_a_default_of_the_file_that_no_class_needs_any_more_gives_way(made):
    """Else its reader refuses it: a value that changes nothing."""
    words = [f"slo.classes.{name}.ttft_s=0.5" for name in ("coding", "chat", "summarization")]
    for slo in ("slo=./slo.yaml", "slo=adaserve"):
        assert "ttft_s" in plain(slo, *words[:2])["slo"]
        config = plain(slo, *words, "trace=poisson", "requests=9")
        assert "ttft_s" not in config["slo"]
        assert set(prepare(config).simulation.requests.ttft_slo_s.tolist()) == {0.5}
        with pytest.raises(SpecsimError, match="ttft_s: changes nothing"):
            prepare(plain(slo, *words, "slo.ttft_s=1"))


def test_a_ratio_takes_the_place_of_seconds(made):
    for slo in ("slo=./slo.yaml", "slo=adaserve"):
        chat = plain(slo, "slo.classes.chat.tpot_ratio=1.5")["slo"]["classes"]["chat"]
        assert "tpot_s" not in chat
        assert chat["tpot_ratio"] == 1.5


@pytest.mark.parametrize("slo", ["slo=./slo.yaml", "slo=adaserve"])
def test_a_class_that_the_mix_lacks_is_refused(made, slo):
    with pytest.raises(SpecsimError, match=r"slo\.classes\.codng\.ttft_s.*'coding'"):
        plain(slo, "slo.classes.codng.ttft_s=1")


@pytest.mark.parametrize("slo", ["slo=./slo.yaml", "slo=adaserve"])
@pytest.mark.parametrize("word", ["slo.classes.chat.ttft=1", "slo.classes.chat={tfft_s: 1}"])
def test_what_no_class_may_hold_is_judged_by_the_reader_of_the_mix(made, slo, word):
    with pytest.raises(SpecsimError, match=r"classes\.chat\.t[tf]+t(_s)?: unknown key; did you mean 'ttft_s'"):
        prepare(plain(slo, word))


def test_a_key_that_another_groups_file_lacks_is_refused_by_path_and_by_name(made):
    for scheduler in ("scheduler=./scheduler.yaml", "scheduler=continuous"):
        with pytest.raises(SpecsimError, match="num_speculative_tokens"):
            plain(scheduler, "scheduler.num_speculative_tokens=4")


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["rps='2'"], ["rps=2"]),
        (['rps="2"'], ["rps=2"]),
        (["rps=2.0"], ["rps=2"]),
        (["requests=1e3"], ["requests=1000"]),
        (["requests=1_000"], ["requests=1000"]),
        (["requests=100.0"], ["requests=100"]),
        (["requests='1e2'"], ["requests=100"]),
        (["seed=1e0"], ["seed=1"]),
        (["passes='true'"], ["passes=true"]),
        (["metrics.window='[0, 5]'"], ["metrics.window=[0,5]"]),
        (["scheduler='fcfs'"], ["scheduler=fcfs"]),
        (['+scheduler="fcfs"'], ["scheduler=fcfs"]),
        (["++rps=2"], ["rps=2"]),
        (["rps = 2"], ["rps=2"]),
        (["scheduler.max_num_seqs=1e1"], ["scheduler.max_num_seqs=10"]),
        (["scheduler.max_num_seqs='8'"], ["scheduler.max_num_seqs=8"]),
        (["scheduler.shape={width_max: 2.0}"], ["scheduler.shape.width_max=2"]),
        (["belief='llama8b_1b_h100'"], ["belief=llama8b_1b_h100"]),
        (["scheduler=choice(fcfs)"], ["scheduler=fcfs"]),
    ],
    ids=lambda words: words[0],
)
def test_spellings_of_one_setting(words, same):
    """The configurations print alike, too: a run's config.yaml does not tell 1e3 from 1000."""
    assert str(plain(*words)) == str(plain(*same))


def test_quotes_keep_text_where_text_stands():
    assert plain("slo.source='5'")["slo"]["source"] == "5"
    assert plain("slo.source='a, b'")["slo"]["source"] == "a, b"


def test_a_number_stays_as_it_is_where_it_is_no_whole_one():
    assert [plain("requests=1.5")["requests"], plain("slo_scale=2.0")["slo_scale"]] == [1.5, 2.0]
    assert plain("seed=1e300")["seed"] == 1e300


def test_a_file_may_repeat_a_key_of_its_own(made):
    text = (made / "scheduler.yaml").read_text()
    (made / "scheduler.yaml").write_text(text + "copy: ${.max_num_seqs}\n")
    assert plain("scheduler=./scheduler.yaml", "scheduler.max_num_seqs=9")["scheduler"]["copy"] == 9


def test_a_list_is_set_by_place_too():
    points_of = plain("trace=adaserve_fig8", "trace.points.0.point=9")["trace"]["points"]
    assert [each["point"] for each in points_of[:2]] == [9, 2.6]


def test_hydra_keeps_no_trace_of_a_composition():
    from hydra.core.global_hydra import GlobalHydra

    plain("seed=3")
    assert not GlobalHydra.instance().is_initialized()
