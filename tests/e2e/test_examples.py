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
ARGUMENTS = {"compare_schedulers.py": ["100", "50 points", "2"]}
"""Short runs of what takes half an hour."""
WRITES = {
    "choose_deployment.py": {"mix.yaml"},
    "compare_schedulers.py": {"compare_schedulers", "compare_schedulers.csv", "compare_schedulers.png"},
    "own_scheduler.py": {"own_scheduler.yaml"},
}


def test_each_script_is_short_and_named_on_its_page() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES] == sorted(PRINTS)
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name
        assert f"(../examples/{path.name})" in page
    assert "(docs/examples.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_script_runs_in_an_empty_directory(path: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "SPECSIM_DATA"} | {"MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "error", str(path), *ARGUMENTS.get(path.name, ())]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in PRINTS[path.name] if line not in done.stdout] == []
    assert not re.search(r"\bnan\b", done.stdout, re.IGNORECASE)
    assert {each.name for each in tmp_path.iterdir()} == WRITES[path.name]
