"""The command, in the checkout and from the wheel: quick help, quiet pipes, the same bytes for the same seed."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest
import yaml

from specsim import load_run, simulate
from specsim.cli import main
from specsim.config.schema import GROUPS, known_keys, lines
from tests.files import ROOT

SMALL = ["scheduler=adaserve", "trace=poisson", "requests=8", "acceptance=bernoulli", "profile=llama8b_1b_h100"]
SLOW_TO_IMPORT = ("numpy", "pandas", "hydra", "omegaconf", "yaml", "matplotlib", "simpy", "scipy", "pyarrow", "torch")
SAME_BYTES = ("metrics.json", "requests.parquet", "passes.parquet", "config.yaml")


def ran(*command, cwd, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in ("SPECSIM_DATA", "PYTHONPATH")}
    environment |= {"XDG_CACHE_HOME": str(cwd / "cache"), **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def specsim(*words, cwd, **variables):
    return ran(sys.executable, "-m", "specsim", *words, cwd=cwd, PYTHONPATH=str(ROOT), **variables)


TAB = {"_ARGCOMPLETE": "1", "COMP_LINE": "specsim run scheduler=ad", "COMP_POINT": "24"}


@pytest.mark.parametrize(
    ("words", "said", "variables"),
    [(words.split(), "specsim", {}) for words in ("--help", "run --help", "--version", "completion fish")]
    + [([], "adaserve", TAB)],
)
def test_what_answers_at_once_imports_nothing_slow(words, said, variables):
    code = f"""
import os, sys; os._exit = sys.exit
from specsim.cli import main
try:
    main({words!r})
except SystemExit as stop:
    assert stop.code == 0, stop.code
print(sorted(set(sys.modules) & set({SLOW_TO_IMPORT!r})), file=sys.stderr)
"""
    variables = {**os.environ, "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout", **variables}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
    assert done.stderr.strip() == "[]"
    assert said in done.stdout


def test_help_names_every_setting_a_newcomer_needs_and_none_that_is_not(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    said = capsys.readouterr().out
    named = set(re.findall(r"(?<![.\w])([a-z_]+)=", said)) - {"key"}
    needed = {"rps", "slo_scale", "ttft_scale", "requests", "seed", "replicas", "passes", "out"}
    assert {*GROUPS, *needed} <= named <= set(known_keys())
    assert "-m" in said


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_whatever_the_hash_seed(tmp_path):
    for seed in ("1", "2"):
        done = specsim("run", *SMALL, "passes=true", f"out=run{seed}", cwd=tmp_path, PYTHONHASHSEED=seed)
        assert (done.returncode, done.stderr) == (0, "")
    for name in SAME_BYTES:
        assert (tmp_path / "run1" / name).read_bytes() == (tmp_path / "run2" / name).read_bytes(), name
    files = {path.name for path in (tmp_path / "run1").iterdir()}
    assert files == {*SAME_BYTES, "provenance.json"}


def test_a_pipe_shows_notes_surrogate_table_and_folder_and_no_progress_bar(tmp_path):
    done = specsim("run", *SMALL[:1], "trace=azure_code", *SMALL[2:], "out=here", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[-1] == "here"
    assert any(line.startswith("all ") for line in said)
    assert any(line.startswith("8 completed + 0 rejected = 8 arrived; ") for line in said)
    assert "\r" not in done.stdout
    notes = [line for line in said if line.startswith("note: ")]
    assert not any("surrogate" in line for line in notes)
    above, head = said[len(notes) :][:2]
    assert above.startswith("azure_code: the synthetic surrogate that ships; `specsim trace fetch azure_code`")
    assert head.startswith("class ")
    provenance = json.loads((tmp_path / "here" / "provenance.json").read_text())
    assert provenance["trace"]["origin"] == "surrogate"
    assert "CC BY 4.0" in provenance["trace"]["licence"]
    assert [f"note: {note}" for note in provenance["notes"]] == [f"note: {above}", *notes]


def test_a_terminal_shows_a_progress_bar_that_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["run", *SMALL, f"out={tmp_path / 'run'}"]) == 0
    said = capsys.readouterr()
    assert "0/8" in said.err
    assert said.err.rstrip("\r").split("\r")[-1].strip() == ""
    assert said.out.splitlines()[-1] == str(tmp_path / "run")


def test_a_users_own_profiler_is_told(tmp_path):
    (tmp_path / "profiler.py").write_text("")
    done = specsim("profile", "latency", cwd=tmp_path)
    assert done.returncode == 2
    assert "stands in the way of specsim's own package profiler" in done.stderr
    assert len(done.stderr.splitlines()) == 1


SAME = {"trace": "poisson", "requests": 60, "rps": 5, "seed": 3, "replicas": 2}


def test_each_scheduler_against_has_a_column_of_the_same_requests_and_nothing_is_stored_for_it(tmp_path, capsys):
    words = ["scheduler=adaserve", *(f"{key}={value}" for key, value in SAME.items())]
    assert main(["run", *words, "--against", "vllm,vllm_spec", f"out={tmp_path / 'run'}"]) == 0
    rows = {line.partition(" ")[0]: line.split()[2:5] for line in capsys.readouterr().out.splitlines()}
    assert rows["class"] == ["attained", "vllm", "vllm_spec"]
    metrics = {name: simulate(name, **SAME).metrics for name in ("adaserve", "vllm", "vllm_spec")}
    for name in ("chat", "coding", "summarization", "all"):
        blocks = (each["specsim"] if name == "all" else each["specsim"]["classes"][name] for each in metrics.values())
        told = [f"{100 * each['slo_attainment']:.1f}" for each in blocks]
        assert [each.lstrip("*") for each in rows[name]] == told
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    assert load_run(tmp_path / "run").metrics == metrics["adaserve"]


SETTINGS = ["scheduler=fcfs", "trace=poisson", "requests=4", "acceptance=bernoulli", "profile=llama8b_1b_h100"]


@pytest.fixture
def shown(here, started, capsys):
    """Return a function that gives the settings that `--cfg job` prints; nothing runs and nothing is written."""

    def show(*words):
        assert main(["run", *words]) == 0
        assert started == list(here.iterdir()) == []
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize("flags", [["-c", "job"], ["--cfg=job"]])
def test_the_settings_that_are_shown_are_what_the_runs_own_file_holds(shown, tmp_path, flags):
    words = [*SETTINGS, "rps='3'", "slo.classes.coding.tpot_s=3e-2", "seed=4"]
    text = shown(*flags, *words, f"out={tmp_path / 'run'}")
    assert main(["run", *words, f"out={tmp_path / 'run'}"]) == 0
    assert re.sub("  # .*", "", text) == (tmp_path / "run" / "config.yaml").read_text()
    assert f"rps: 3  # {lines()['rps']}\n" in text
    assert yaml.safe_load(text)["seed"] == 4


def test_a_sweep_shows_each_point_as_a_document_that_says_what_differs(shown):
    text = shown("-m", "--cfg", "job", *SETTINGS, "rps=2,3", "seed=5")
    assert [config["rps"] for config in yaml.safe_load_all(text)] == [2, 3]
    assert [line for line in text.splitlines() if line.startswith("#")] == ["# rps=2", "# rps=3"]


PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def succeeds(*command, cwd):
    done = ran(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    words = ("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    succeeds(sys.executable, *PIP, *words, cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install the wheel alone; its dependencies are those of the running environment, seen through a .pth file.

    A folder named in a .pth has its own .pth files ignored, so the editable checkout stays out of sight.
    """
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "env", with_pip=True)
    python = str(folder / "env" / "bin" / "python")
    succeeds(python, *PIP, "install", "--no-deps", "--no-index", str(wheel), cwd=folder)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


@pytest.mark.slow
def test_the_wheel_holds_every_shipped_file_and_nothing_of_the_workshop(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    shipped = [path for top in ("conf", "traces") for path in (ROOT / top).rglob("*") if path.is_file()]
    shipped = [path for path in shipped if "__pycache__" not in path.parts]
    assert len(shipped) > 50
    for path in shipped:
        assert f"specsim/_data/{path.relative_to(ROOT)}" in inside
    tops = {name.split("/")[0] for name in inside}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"specsim", "profiler"}
    assert any(name.endswith("licenses/LICENSE") for name in inside)


@pytest.mark.slow
def test_the_installed_command_runs_on_the_surrogate_inside_the_wheel(installed):
    command = str(installed / "env" / "bin" / "specsim")
    words = ("run", "+scheduler=continuous", "trace=azure_code", "requests=50")
    said = succeeds(command, *words, "out=here", cwd=installed)
    assert "50 completed + 0 rejected = 50 arrived" in said
    provenance = json.loads((installed / "here" / "provenance.json").read_text())
    assert provenance["trace"]["origin"] == "surrogate"
    assert provenance["trace"]["file"] == "azure_code_surrogate.csv.gz"
    succeeds(sys.executable, "-m", "specsim", *words, "out=checkout", cwd=installed)
    for name in ("metrics.json", "requests.parquet", "config.yaml"):
        assert (installed / "here" / name).read_bytes() == (installed / "checkout" / name).read_bytes()
