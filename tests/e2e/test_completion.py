"""Completion in bash, zsh and fish: what the shells' own functions offer."""

import subprocess
import sys

import pytest

from specsim.cli import main

COMMANDS = (
    "calibrate compare completion fidelity find import list plot profile report run sweep trace trace-events tune"
)
CASES = [
    ("", COMMANDS.split()),
    ("run sch", ["scheduler="]),
    ("run scheduler=laps", ["scheduler=laps_adaserve", "scheduler=laps_sd", "scheduler=laps_sd_oracle"]),
    ("calibrate mine.csv --engine trt", ["trtllm_1_0", "trtllm_1_2"]),
    ("run scheduler=continuous scheduler.max_num_s", ["scheduler.max_num_seqs="]),
    ("run slo.classes.chat.t", [f"slo.classes.chat.{key}=" for key in ("tpot_ratio", "tpot_s", "ttft_s")]),
    ("run trace=./mi", ["trace=./mine.csv", "trace=./mines/"]),
    ("run scheduler=./my.yaml scheduler.", ["scheduler.own_key="]),
    ("run --cfg job -p slo.classes.ch", ["slo.classes.chat."]),
    ("run -m --executor d", ["dask"]),
    ("tune --schedulers vllm_", ["vllm_dynamic", "vllm_spec"]),
    ("trace fetch azure", ["azure_code", "azure_conv"]),
    ("fidelity ti", ["timeout_s=", "tiny"]),
    ("calibrate mine", ["mine.csv", "mines/"]),
]


@pytest.fixture(autouse=True)
def _files(here, monkeypatch):
    """Lay out files to complete, and put `specsim` of this very tree on the path."""
    for name, text in {"mine.csv": "", ".hidden": "", "a b.csv": "", "my.yaml": "own_key: 1\n"}.items():
        (here / name).write_text(text)
    (here / "mines").mkdir()
    command = here / "bin" / "specsim"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m specsim "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=":")


def in_bash(lines):
    """Return what bash's own function offers for each line."""
    script = ['eval "$(specsim completion bash)"']
    for line in lines:
        script += [f'COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=(); _specsim specsim', "echo ---"]
        script += ['printf "%s\\n" "${COMPREPLY[@]}"']
    done = subprocess.run(["bash", "-c", "\n".join(script)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [part.split("\n")[1:-1] for part in done.stdout.split("---")[1:]]


@pytest.mark.parametrize("cases", [CASES[4:6], pytest.param(CASES, marks=pytest.mark.slow)], ids=["two", "all"])
def test_bash_is_offered_what_stands_behind_its_word_breaks(cases):
    """Bash takes ``scheduler=ad`` for three words and replaces the last of them."""
    for (line, whole), found in zip(cases, in_bash([f"specsim {line}" for line, _ in cases]), strict=True):
        begun = line.rpartition(" ")[2]
        cut = begun.rfind("=") + 1
        assert [each for each in found if each] == [each[cut:] for each in whole], line


def test_bash_gets_special_characters_escaped_and_nothing_within_quotes(capsys):
    main(["completion", "bash", "specsim run trace=./a", "="])
    assert capsys.readouterr().out == "./a\\ b.csv\n"
    main(["completion", "bash", "specsim run 'trace=./a", "="])
    assert capsys.readouterr().out == "\n"
    main(["completion", "bash", "specsim"])
    assert capsys.readouterr().out == "\n"


@pytest.mark.parametrize(("line", "whole"), CASES, ids=[line for line, _ in CASES])
def test_zsh_and_fish_are_offered_whole_words(capsys, line, whole):
    shell = "fish" if line.startswith("run s") else "zsh"
    assert main(["completion", shell, "--", *line.split(" ")]) == 0
    assert capsys.readouterr().out.split() == whole
