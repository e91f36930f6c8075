"""The installed command: quick help, quiet pipes, the same bytes for the same seed, twins told of."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specsim.cli import main
from specsim.config.schema import GROUPS, known_keys

SMALL = ["scheduler=adaserve", "trace=poisson", "requests=8", "acceptance=bernoulli", "profile=llama8b_1b_h100"]
SLOW_TO_IMPORT = ("numpy", "pandas", "hydra", "omegaconf", "yaml", "matplotlib", "simpy", "scipy", "pyarrow", "torch")
SAME_BYTES = ("metrics.json", "requests.parquet", "passes.parquet", "config.yaml")


def specsim(*words, cwd, **variables):
    environment = {key: value for key, value in os.environ.items() if key != "SPECSIM_DATA"}
    environment |= {"XDG_CACHE_HOME": str(cwd / "cache"), **variables}
    return subprocess.run(
        [sys.executable, "-m", "specsim", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_imports_nothing_slow(words):
    code = f"""
import sys
from specsim.cli import main
from specsim.config.schema import GROUPS, known_keys
try:
    main({words!r})
except SystemExit as stop:
    assert stop.code == 0, stop.code
print(sorted(set(sys.modules) & set({SLOW_TO_IMPORT!r})), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "specsim" in done.stdout


def test_help_names_every_setting_a_newcomer_needs_and_none_that_is_not(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    said = capsys.readouterr().out
    named = set(re.findall(r"(?<![.\w])([a-z_]+)=", said)) - {"key"}
    needed = {"rps", "slo_scale", "ttft_scale", "requests", "seed", "replicas", "passes", "out"}
    assert {*GROUPS, *needed} <= named <= set(known_keys())
    assert "-m" in said


def test_the_console_script_is_the_module(tmp_path):
    script = Path(sys.executable).with_name("specsim")
    assert script.is_file()
    by_script = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert by_script.stdout == specsim("--version", cwd=tmp_path).stdout
    assert re.fullmatch(r"specsim \d+\.\d+\.\d+\n", by_script.stdout)


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_whatever_the_hash_seed(tmp_path):
    for seed in ("1", "2"):
        done = specsim("run", *SMALL, "passes=true", f"out=run{seed}", cwd=tmp_path, PYTHONHASHSEED=seed)
        assert (done.returncode, done.stderr) == (0, "")
    for name in SAME_BYTES:
        assert (tmp_path / "run1" / name).read_bytes() == (tmp_path / "run2" / name).read_bytes(), name
    files = {path.name for path in (tmp_path / "run1").iterdir()}
    assert files == {*SAME_BYTES, "provenance.json"}


def test_another_seed_writes_other_bytes(tmp_path):
    for seed in (0, 1):
        assert main(["run", *SMALL, f"seed={seed}", f"out={tmp_path / str(seed)}"]) == 0
    assert (tmp_path / "0" / "requests.parquet").read_bytes() != (tmp_path / "1" / "requests.parquet").read_bytes()


def test_a_pipe_shows_the_table_and_the_folder_and_no_progress_bar(tmp_path):
    done = specsim("run", *SMALL, "out=here", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "here"
    assert any(line.startswith("all ") for line in lines)
    assert "8 completed + 0 rejected = 8 arrived" in lines
    assert "\r" not in done.stdout


def test_a_terminal_shows_a_progress_bar_that_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["run", *SMALL, f"out={tmp_path / 'run'}"]) == 0
    said = capsys.readouterr()
    assert "0/8" in said.err
    assert said.err.rstrip("\r").split("\r")[-1].strip() == ""
    assert said.out.splitlines()[-1] == str(tmp_path / "run")


def test_a_mistake_in_the_installed_command_is_one_line(tmp_path):
    done = specsim("run", "scheduler=adasrve", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "specsim: scheduler=adasrve: unknown; did you mean 'adaserve'?\n"
    assert list(tmp_path.iterdir()) == []


def test_both_spellings_write_the_same_run(tmp_path):
    for spelling in ("scheduler", "+scheduler"):
        assert main(["run", f"{spelling}=fcfs", *SMALL[1:], f"out={tmp_path / spelling}"]) == 0
    for name in ("metrics.json", "requests.parquet", "config.yaml"):
        assert (tmp_path / "scheduler" / name).read_bytes() == (tmp_path / "+scheduler" / name).read_bytes()


def test_a_twin_is_told_of_on_the_terminal_and_in_the_provenance(tmp_path):
    done = specsim("run", *SMALL[:1], "trace=azure_code", *SMALL[2:], "out=here", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    assert not any("twin" in line for line in notes)
    above = lines[len(notes)]
    assert above.startswith("azure_code: the synthetic twin that ships; `specsim trace fetch azure_code`")
    assert lines[len(notes) + 1].startswith("class ")
    provenance = json.loads((tmp_path / "here" / "provenance.json").read_text())
    assert provenance["trace"]["origin"] == "twin"
    assert "CC BY 4.0" in provenance["trace"]["licence"]
    assert [f"note: {note}" for note in provenance["notes"]] == notes


def test_a_synthetic_trace_has_nothing_to_tell(tmp_path, capsys):
    assert main(["run", "scheduler=continuous", *SMALL[1:], f"out={tmp_path / 'run'}"]) == 0
    assert not [line for line in capsys.readouterr().out.splitlines() if "twin" in line or "toy" in line]


def test_the_stored_configuration_is_resolved_and_names_no_folder(tmp_path):
    assert main(["run", *SMALL, "rps=3", f"out={tmp_path / 'run'}"]) == 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["rps"] == 3
    assert config["scheduler"]["_target_"] == "specsim.schedulers.composed.Composed"
    assert config["trace"]["name"] == "poisson"
    assert "out" not in config
    assert str(tmp_path) not in (tmp_path / "run" / "config.yaml").read_text()


def test_without_out_runs_go_below_results_and_never_over_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["run", *SMALL]) == 0
    folders = {line for line in capsys.readouterr().out.splitlines() if line.startswith("results")}
    assert len(folders) == 2
    for folder in folders:
        assert "adaserve-poisson" in folder
        assert (tmp_path / folder / "metrics.json").is_file()


@pytest.mark.parametrize("name", ["my run", "Jörg é", "a=b", "a (1)", "it's", "a#1"])
def test_a_run_folder_may_have_any_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *SMALL, f"out=./{name}"]) == 0
    assert (tmp_path / name / "metrics.json").is_file()


def test_the_module_ends_with_the_status_of_the_command(tmp_path):
    assert specsim("list", "nope", cwd=tmp_path).returncode == 2
    assert specsim("list", "slo", cwd=tmp_path).returncode == 0


def test_a_closed_pipe_is_no_stack_trace(tmp_path):
    command = f"{sys.executable} -m specsim list | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "schedulers:\n"
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["profiler.py", "profiler/__init__.py"])
def test_a_users_own_profiler_is_told(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    done = specsim("profile", "latency", cwd=tmp_path)
    assert done.returncode == 2
    assert "stands in the way of specsim's own package profiler" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_help_of_list_says_what_it_prints_and_what_it_takes(capsys):
    with pytest.raises(SystemExit):
        main(["list", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Print what can be chosen, each name with a line about it" in said
    assert "what to list (all of them)" in said
