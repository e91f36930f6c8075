"""The scripts in examples/, run as a stranger would: in an empty directory, with what ships."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTS = {
    "choose_deployment.py": (
        "llama70b_1b_4xa100 adaserve",
        "4 GPUs: llama70b_1b_4xh100 x 1, vllm_spec scheduler.max_num_batched_tokens=",
    ),
    "compare_schedulers.py": (
        "At 6 requests/s the best is ",
        "difference_half_width",
        "vllm_spec    4 ",
        "vllm_spec    7 ",
    ),
    "own_scheduler.py": ("mean TPOT, ms", "\n512 ", "share of requests that attain"),
}
ARGUMENTS = {"compare_schedulers.py": ["40", "50 points", "2"]}
"""Short runs of what takes half an hour."""
SHORTER = {"choose_deployment.py": ('"requests": 1100', '"requests": 400')}
"""What it prints is the same, but for the doubt that shorter runs leave."""
WRITES = {
    "choose_deployment.py": {"mix.yaml"},
    "compare_schedulers.py": {"compare_schedulers", "compare_schedulers.csv", "compare_schedulers.png"},
    "own_scheduler.py": {"own_scheduler.yaml"},
}


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_script_runs_in_an_empty_directory(
    path: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text, (old, new) = path.read_text(encoding="utf-8"), SHORTER.get(path.name, ("", ""))
    assert old in text
    script = tmp_path_factory.mktemp("examples") / path.name
    script.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "SPECSIM_DATA"} | {"MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "error", str(script), *ARGUMENTS.get(path.name, ())]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in PRINTS[path.name] if line not in done.stdout] == []
    assert not re.search(r"\bnan\b", done.stdout, re.IGNORECASE)
    assert {each.name for each in tmp_path.iterdir()} == WRITES[path.name]
