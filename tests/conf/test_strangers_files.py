"""A file of somebody else, whatever verb reads it, has no code loaded, writes nowhere and replaces nothing."""

from pathlib import Path

import pytest
import yaml

from specsim import iterations, load_run, simulate
from specsim.cli import main
from specsim.files.yaml_file import read_yaml, shipped
from specsim.workload.fetch import fetch
from studies.reproduction.experiment import FOLDER, read_experiment
from tests.files import reseal
from tests.made import refusal

SMALL = {"trace": "poisson", "requests": 5, "profile": "llama8b_1b_h100", "scheduler": "continuous"}
ANY = {"target": "any", "draft": "any"}
EVIL = "from pathlib import Path\nPath('loaded').touch()\nclass Evil:\n    pass\n"


@pytest.fixture(autouse=True)
def there(here):
    (here / "evil.py").write_text(EVIL)
    return here


def write(name, values):
    Path(name).write_text(yaml.safe_dump(values))
    return f"./{name}"


def shipped_file(*names):
    return read_yaml(shipped("conf").joinpath(*names))


@pytest.mark.parametrize(("key", "value"), [("plugins", ["./evil.py"]), ("out", "elsewhere")])
@pytest.mark.parametrize("section", ["run", "grid", "zip", "random"])
def test_a_sweeps_file_sets_neither(refused, section, key, value):
    held = value if section == "run" else [value]
    held = {"points": 1, "draw": {key: held}} if section == "random" else {key: held}
    run = {**SMALL, **(held if section == "run" else {})}
    file = write("sweep.yaml", {"run": run, **({} if section == "run" else {section: held})})
    said = refused("sweep", file)
    assert f"sweep.yaml: {section}: {key}: no file sets it" in said
    assert f"expected {key}= on the command line or in Python" in said


def test_the_command_line_sets_both_for_a_sweeps_file(there):
    (there / "mine.py").write_text("from specsim.schedulers.fcfs import Fcfs\nclass Mine(Fcfs):\n    pass\n")
    mine = write("mine.yaml", {**shipped_file("scheduler", "fcfs.yaml"), "_target_": "mine.Mine"})
    file = write("sweep.yaml", {"run": {**SMALL, "scheduler": mine}})
    assert main(["sweep", file, "plugins=[./mine.py]", f"out={there / 'there'}"]) == 0
    assert (there / "there" / "table.csv").is_file()


@pytest.mark.parametrize("group", ["scheduler", "trace", "slo", "acceptance", "profile", "drafter", "engine", "router"])
@pytest.mark.parametrize("key", ["plugins", "out"])
def test_a_groups_file_sets_neither(refused, group, key):
    values = shipped_file(group, f"{shipped_file('config.yaml')[group]}.yaml")
    file = write("theirs.yaml", {**values, key: ["./evil.py"]})
    assert f"{key}: no file sets it" in refused("run", f"{group}={file}", "out=run")


@pytest.mark.parametrize("place", ["common", "systems", "points", "ranges"])
@pytest.mark.parametrize("word", ["plugins=[./evil.py]", "++plugins=[./evil.py]", "out=elsewhere"])
def test_an_experiment_sets_neither(place, word):
    values = yaml.safe_load((FOLDER / "smartspec_fig1.yaml").read_text())
    if place == "common":
        values["common"].append(word)
    elif place == "systems":
        next(iter(values["systems"].values())).append(word)
    elif place == "points":
        values["axis"] = {"label": "x", "points": {each: [word] for each in values["axis"]["values"]}}
    else:
        values["ranges"] = [{"choice": "what", "variants": {"other": [word]}}]
    assert "no file sets it" in refusal(read_experiment, Path(write("theirs.yaml", values)))


def test_a_study_sets_neither_and_names_no_other_folder(refused):
    values = shipped_file("fidelity", "tiny.yaml")
    (pair, *_) = values["pairs"].values()
    for change, said in (
        ({"settings": [*values["settings"], "plugins=[./evil.py]"]}, "no file sets it"),
        ({"schedulers": {**values["schedulers"], "vllm_spec": ["out=elsewhere"]}}, "no file sets it"),
        ({"pairs": {"../there": pair}}, "names files; expected a name without separators"),
    ):
        assert said in refused("fidelity", write("theirs.yaml", {**values, **change}))


@pytest.mark.torch
def test_a_models_name_imports_no_package():
    pytest.importorskip("torch")
    from profiler.fidelity.models import place_of

    Path("evil_package").mkdir()
    Path("evil_package/__init__.py").write_text(EVIL)
    assert "no such package" in refusal(place_of, "package:evil_package.below")
    assert not Path("loaded").exists()


def published(**change):
    return {**shipped_file("trace", "azure_code.yaml"), "url": "http://127.0.0.1:1/x", **change}


@pytest.mark.parametrize("file", ["../x", "/tmp/x", ".", ".bashrc", "a\\b", "a\nb", ""])
def test_a_fetched_file_has_a_plain_name(file, refused):
    assert "file" in refused("trace", "fetch", write("theirs.yaml", published(file=file)))
    figure = shipped_file("trace", "adaserve_fig8.yaml")
    figure["points"][0]["file"] = file
    assert "points[0].file" in refused("trace", "fetch", write("theirs.yaml", figure))


@pytest.mark.parametrize("ships", ["../conf/config.yaml", "/etc/passwd", "{point.__class__}/../x"])
def test_what_ships_has_a_name_below_its_folder(ships, refused):
    assert "ships" in refused("run", f"trace={write('theirs.yaml', published(ships=ships))}", "out=run")


@pytest.mark.parametrize("there_already", ["file", "folder", "link"])
def test_a_fetch_replaces_nothing(there, there_already):
    target = there / "x.csv"
    if there_already == "file":
        target.write_text("mine")
    elif there_already == "folder":
        target.mkdir()
    else:
        target.symlink_to(there / "nowhere")
    said = refusal(fetch, "theirs", published(file="x.csv"), there, progress=False)
    assert "is there, with another sha256; nothing is replaced" in said
    assert sorted(each.name for each in there.iterdir()) == ["evil.py", "x.csv"]
    assert there_already != "file" or target.read_text() == "mine"


TARGETS = [
    *(("run", group, "evil.Evil") for group in ("scheduler", "trace", "acceptance", "drafter", "router")),
    ("run", "scheduler", "specsim.cli.main"),
    ("find", "router", "builtins.exec"),
    ("sweep", "drafter", "os.system"),
    ("fetch", "trace", "evil.Evil"),
]


@pytest.mark.parametrize(("verb", "group", "target"), TARGETS)
def test_a_target_is_ours_or_was_typed(verb, group, target, refused):
    file = write("theirs.yaml", {"_target_": target, **({"pair": ANY} if group == "acceptance" else {})})
    settings = {"scheduler": "vllm_spec", "trace": "poisson", "requests": 3, "replicas": 2, group: file}
    words = [f"{key}={value}" for key, value in settings.items()]
    given = {
        "run": ["run", *words, "out=run"],
        "find": ["find", *words, "seed=0", "--out", "run"],
        "sweep": ["sweep", write("sweep.yaml", {"run": settings}), "out=run"],
        "fetch": ["trace", "fetch", file],
    }
    said = refused(*given[verb])
    assert f"_target_: {target!r} is not allowed; expected" in said
    assert "an installed entry point or a module named in plugins=" in said


def test_a_stored_runs_plugins_are_loaded_only_if_they_are_named():
    simulate(**SMALL, out="run")
    config = read_yaml(Path("run/config.yaml"))
    Path("run/config.yaml").write_text(yaml.safe_dump({**config, "plugins": ["./evil.py"]}))
    reseal(Path("run"))
    run = load_run("run")
    assert "its plugins are ['./evil.py']; expected them in plugins=, too" in refusal(iterations, run, [0])
    assert not Path("loaded").exists()
    assert len(iterations(run, [0], plugins=["./evil.py"])) == 1
    assert Path("loaded").exists()
