"""The README's commands do what it says, as written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line[2:]
    for block in re.findall(r"```console\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line[:2] == "$ "
]
TYPED = re.findall(r"`(specsim [^`]+)`", README.partition("## To know, type")[2].partition("## Read")[0])
SPECSIM = [line for line in (*COMMANDS, *TYPED) if line.startswith("specsim ")]


def test_the_make_targets_it_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named
    assert named <= targets


@pytest.mark.slow
def test_its_commands_run_in_their_order_and_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(SPECSIM) >= 6
    for line in SPECSIM:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(line)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        told = done.stdout + done.stderr
        assert "MISMATCHED" not in told
        if line.startswith("specsim find "):
            assert "too short to judge" not in told
            rates = re.findall(r"[\d.]+ ± [\d.]+", done.stdout)
            assert len(rates) == 3
            assert all(rate in README for rate in rates)
        else:
            assert "too short" not in told
    assert (tmp_path / "first/figures/timeline.png").stat().st_size > 10_000


@pytest.mark.slow
def test_its_table_is_what_make_run_prints_of_runs_that_are_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nrun: ")[2].partition("\n\n")[0].partition("/specsim ")[2]
    words = [sys.executable, "-m", "specsim", *shlex.split(recipe.replace("\\\n", " "))]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    (table,) = re.findall(r"```text\n(.*?)\n```", README, re.S)
    assert done.stdout.startswith(table) or f"\n{table}\n" in done.stdout
    assert "too short" not in done.stdout + done.stderr


@pytest.mark.slow
def test_its_python_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(r"[01]\.\d+ \d+", done.stdout)
