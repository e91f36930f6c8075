"""Completion in bash: what its function offers."""

import shlex
import subprocess
import sys

import pytest
from argcomplete.shell_integration import shellcode

from specsim.commands.completion import MENDS

VERBS = "calibrate compare completion fidelity find import list plot profile report run sweep trace trace-events tune"
CASES = [
    ("", VERBS.split()),
    *(("run sch", ["scheduler="]), ("calibrate mine.csv --engine trt", ["trtllm_1_0", "trtllm_1_2"])),
    ("run scheduler=laps", ["scheduler=laps_adaserve", "scheduler=laps_sd", "scheduler=laps_sd_oracle"]),
    ("run scheduler=continuous scheduler.max_num_s", ["scheduler.max_num_seqs="]),
    ("run slo.classes.chat.t", [f"slo.classes.chat.{key}=" for key in ("tpot_ratio", "tpot_s", "ttft_s")]),
    *((f"run scheduler=./my.yaml {words}scheduler.", ["scheduler.own_key="]) for words in ("", "-m rps=2 ")),
    *(("run trace=./mi", ["trace=./mines/", "trace=./mine.csv"]), ("run trace=./.", ["trace=./.hidden"])),
    ("run -m --executor d", ["dask"]),
    *(("tune --schedulers vllm_", ["vllm_dynamic", "vllm_spec"]), ("profile l", ["latency"])),
    *(("trace fetch azure", ["azure_code", "azure_conv"]), ("fidelity ti", ["timeout_s=", "tiny"])),
    ("calibrate mine", ["mines/", "mine.csv"]),
    ("calibrate mine.csv --all ", ["bin/", "mines/", "a\\ b.csv", "mine.csv", "my.yaml"]),
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


def in_bash(*lines):
    """Return what bash's own function offers for each line, and whether a space follows it."""
    script = ['eval "$(specsim completion bash)"', "compopt() { flag=$1; }"]
    for line in lines:
        script += [f"COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; COMPREPLY=()"]
        script += [f"_python_argcomplete '{line.split()[0]}'", 'printf "%s\\n" "${COMPREPLY[@]}" $flag ---']
    done = subprocess.run(["bash", "-c", "\n".join(script)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [(found, flag == "+o") for *found, flag, _ in (part.split("\n") for part in done.stdout.split("---\n")[:-1])]


def test_bash_is_offered_what_stands_behind_its_word_breaks_within_quotes_and_behind_a_tilde(monkeypatch, here):
    """Bash takes ``scheduler=ad`` for three words and replaces the last of them."""
    for (line, whole), found in zip(CASES, in_bash(*(f"specsim {line}" for line, _ in CASES)), strict=True):
        cut = line.rpartition(" ")[2].rfind("=") + 1
        assert found == ([each[cut:] for each in whole], whole[0][-1] not in "=./"), line
    monkeypatch.setenv("HOME", str(here))
    found = in_bash("specsim run 'trace=./a", "~/bin/specsim run trace=~/b", "specsim")
    assert found == [(["trace=./a b.csv"], True), (["~/bin/"], False), ([], True)]
    assert all(each in shellcode(["specsim"]) for each in MENDS)
