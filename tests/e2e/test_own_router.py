"""docs/replicas.md: its commands run, and a router of one's own runs by path and installed, or fails in one line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from specsim import SpecsimError, load_run, simulate
from specsim.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "replicas.md").read_text(encoding="utf-8")
OWN = {"router": "./most_room.yaml", "plugins": ["./most_room.py"], "replicas": 2, "requests": 20}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "most_room.py").write_text(blocks("python")[0])
    (tmp_path / "most_room.yaml").write_text(blocks("yaml")[0])
    return tmp_path


def test_the_commands_of_the_page_run(written: Path) -> None:
    commands = re.findall(r"^\$ specsim (.*)$", "".join(blocks("console")), re.MULTILINE)
    assert len(commands) == 7
    for place, command in enumerate(commands):
        command = re.sub("requests=(?:600|2000)", "requests=60", command)  # Whether they run does not depend on it.
        assert main([*shlex.split(command), f"out=run{place}"]) == 0
    first, pools = load_run("run0"), load_run("run2")
    assert first.metrics["specsim"]["router"] == first.provenance["router"] == "least_tokens"
    assert sum(first.metrics["specsim"]["requests_by_replica"]) == 60
    served = pools.requests.groupby("slo_class")["replica"].agg(set).to_dict()
    assert served["coding"] == {0, 1}
    assert served["chat"] | served["summarization"] <= {2, 3}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("most_room.yaml", "token_bytes: 131072", "token_byte: 1", "unknown key 'token_byte'; did you mean"),
        ("most_room.py", "def route(", "def routes(", "has no route(coming, servers) method"),
        (
            "most_room.py",
            "left.index(max(left))",
            "len(left)",
            "MostRoom at 0.0052 s: route returned 2; expected",
        ),
    ],
)
def test_a_mistake_is_one_line(written: Path, file: str, old: str, new: str, said: str) -> None:
    text = (written / file).read_text()
    assert old in text
    (written / file).write_text(text.replace(old, new))
    with pytest.raises(SpecsimError) as raised:
        simulate("continuous", "poisson", **OWN)
    assert said in str(raised.value)
