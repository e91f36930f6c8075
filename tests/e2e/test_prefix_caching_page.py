"""docs/prefix-caching.md: its commands run, a prompt finds what another has read, and what cannot be is refused."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specsim import SpecsimError, load_run, simulate
from specsim.cli import main
from specsim.workload.entry import How
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file, trace_of

PAGE = (Path(__file__).parents[2] / "docs" / "prefix-caching.md").read_text(encoding="utf-8")


def made(folder: Path) -> Path:
    """Write the page's trace there."""
    (writes,) = re.findall(r"^\$ (printf .*)$", PAGE, re.MULTILINE)
    subprocess.run(["sh", "-c", writes], cwd=folder, check=True)
    return folder / "alike.jsonl"


def test_the_second_prompt_of_the_page_finds_two_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = re.findall(r"^\$ specsim (.*)$", PAGE, re.MULTILINE)[0]
    for word in ("true", "false"):
        words = shlex.split(command.replace("prefix_caching=true", f"prefix_caching={word}"))
        assert main([*words, f"out=run-{word}"]) == 0
    shared, plain = load_run("run-true"), load_run("run-false")
    block = shared.metrics["specsim"]
    assert (block["prefix_cache_queries"], block["prefix_cache_hits"]) == (4500, 1024)
    assert block["prefix_cache_hit_rate"] == pytest.approx(1024 / 4500)
    assert plain.metrics["specsim"]["prefix_cache_hit_rate"] is None
    sooner = (shared.requests["ttft_s"] < plain.requests["ttft_s"]).tolist()
    assert sooner == [False, True, True], "the third waits for the second"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"trace": "poisson", "rps": 2}, "prefix_caching=true: trace 'poisson' has no hash_ids that can be used"),
        ({"shed__ttft": True}, "prefix_caching=true: not with shed.ttft; expected one of them"),
        ({"block_tokens": 48}, "hash_ids of 512 tokens are no whole blocks of block_tokens=48"),
        (
            {"replicas": 2, "split__prefill": 1, "split__link_gb_per_s": 50},
            "prefix_caching=true: not with split.prefill; expected one of them",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    timed = {} if "trace" in settings else {"trace": made(tmp_path), "trace__time_unit": "ms"}
    given = {"scheduler": "continuous", **timed, "prefix_caching": True}
    with pytest.raises(SpecsimError) as raised:
        simulate(**{**given, **settings})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_hashes_are_another_trace() -> None:
    columns = {"timestamp": [0, 9000], "input_length": [1500, 1500], "output_length": [2, 2]}
    frames = [pd.DataFrame({**columns, "hash_ids": [[1, 2, 3], last]}) for last in ([1, 2, 4], [5, 6, 4])]
    found = {trace_of(frame, time_unit="ms").source.sha256 for frame in (*frames, pd.DataFrame(columns))}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("hashes", "said"),
    [
        ("7", "hash_ids is not read: entry 1 is no list of whole numbers"),
        ("[1, 2]", "hash_ids is not read: no sizes of a block fit the lengths of all prompts"),
        ("[2, 1, 3]", "hash_ids is not read: a hash stands behind two others"),
    ],
)
def test_other_hashes_are_not_read_and_a_note_says_so(tmp_path: Path, hashes: str, said: str) -> None:
    file = tmp_path / "odd.jsonl"
    rows = [(0, 1500, hashes), (9000, 1500, "[1, 2, 3]")]
    file.write_text(
        "\n".join(
            f'{{"timestamp": {at}, "input_length": {tokens}, "output_length": 2, "hash_ids": {each}}}'
            for at, tokens, each in rows
        )
    )
    trace, told = read_user_file(file, TraceSource("odd", "file"), How("ms"))
    assert said in told
    assert trace.prefixes is None
