"""Pages of docs/ on servers, traces, mixes, acceptance and drafters: examples run as they stand, no key is left out."""

import re
import runpy
import shlex
import subprocess

import pandas as pd
import pytest

from specsim import load_run, simulate
from specsim.acceptance import loading, positions
from specsim.acceptance.curves import CONFIDENCE, KEYS, Curve
from specsim.acceptance.recorded import COLUMNS, DEPTH
from specsim.cli import main
from specsim.latency import drafter
from specsim.runs.execute import REASONS
from specsim.server.admission import TIMEOUT, TTFT, WAITING
from specsim.workload import slo
from specsim.workload.entry import How
from specsim.workload.formats import KNOWN
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file, trace_of
from tests.files import block, blocks, commands, page
from tests.made import refusal

OVERLOAD, CACHING, REPLICAS = page("overload"), page("prefix-caching"), page("replicas")


def test_every_reason_is_told_on_the_page_and_in_rows_metrics_and_notes(here):
    found = []
    for place, words in enumerate(commands(OVERLOAD)):
        assert main([*words, f"out=run{place}"]) == 0
        run = load_run(f"run{place}")
        told, rows = run.metrics["specsim"], run.requests
        assert sum(told["rejected"].values()) + told["completed"] == told["arrived"] == 300
        assert rows["rejected_reason"].value_counts().drop("").to_dict() == told["rejected"]
        assert not rows[rows["rejected_reason"] != ""]["slo_ok"].any()
        assert all(any(REASONS[reason] in note for note in run.notes) for reason in told["rejected"])
        found.append(set(told["rejected"]))
    assert all(reason in each for reason, each in zip((TIMEOUT, WAITING, TTFT), found, strict=True))
    assert set(REASONS) == {"kv_capacity", "context_length", TIMEOUT, WAITING, TTFT}
    assert all(f"`{reason}`" in OVERLOAD for reason in REASONS)


def alike(folder):
    (writes,) = re.findall(r"^\$ (printf .*)$", CACHING, re.MULTILINE)
    subprocess.run(["sh", "-c", writes], cwd=folder, check=True)
    return folder / "alike.jsonl"


def test_the_second_prompt_of_the_page_finds_two_blocks(here):
    alike(here)
    for said in ("true", "false"):
        words = [each.replace("caching=true", f"caching={said}") for each in commands(CACHING)[0]]
        assert main([*words, f"out=run-{said}"]) == 0
    shared, plain = load_run("run-true"), load_run("run-false")
    told = shared.metrics["specsim"]
    assert (told["prefix_cache_queries"], told["prefix_cache_hits"]) == (4500, 1024)
    assert told["prefix_cache_hit_rate"] == pytest.approx(1024 / 4500)
    assert plain.metrics["specsim"]["prefix_cache_hit_rate"] is None
    assert [any("has hash_ids, but no" in note for note in run.notes) for run in (shared, plain)] == [False, True]
    sooner = (shared.requests["ttft_s"] < plain.requests["ttft_s"]).tolist()
    assert sooner == [False, True, True], "the third waits for the second"


ONLY = "max_tokens: 64\nclasses:\n  only: {share: 1.0, tpot_s: 0.05}\n"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"trace": "poisson", "shed__ttft": True, "slo": "./mine.yaml"},
            "shed.ttft=true: changes nothing: no request has a TTFT objective",
        ),
        (
            {"trace": "poisson", "prefix_caching": True},
            "prefix_caching=true: trace 'poisson' has no hash_ids that can be used",
        ),
        ({"prefix_caching": True, "shed__ttft": True}, "prefix_caching=true: not with shed.ttft; expected one of them"),
        ({"prefix_caching": True, "block_tokens": 48}, "hash_ids of 512 tokens are no whole blocks of block_tokens=48"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(settings, said, here):
    (here / "mine.yaml").write_text(ONLY)
    timed = {} if "trace" in settings else {"trace": alike(here), "trace__time_unit": "ms"}
    assert said in refusal(simulate, "continuous", **timed, **settings)


def test_other_hashes_are_another_trace():
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
def test_other_hashes_are_not_read_and_a_note_says_so(tmp_path, hashes, said):
    row = '{{"timestamp": {}, "input_length": 1500, "output_length": 2, "hash_ids": {}}}\n'
    (tmp_path / "odd.jsonl").write_text(row.format(0, hashes) + row.format(9000, "[1, 2, 3]"))
    trace, told = read_user_file(tmp_path / "odd.jsonl", TraceSource("odd", "file"), How("ms"))
    assert said in told
    assert trace.prefixes is None


@pytest.fixture
def router(here):
    for kind, file in {"python": "most_room.py", "yaml": "most_room.yaml"}.items():
        (here / file).write_text(block(REPLICAS, kind))
    return here


@pytest.mark.usefixtures("router")
def test_the_commands_of_the_page_on_replicas_run():
    assert len(commands(REPLICAS)) == 7
    for place, words in enumerate(commands(REPLICAS)):
        words = [re.sub("requests=(?:600|2000)", "requests=60", word) for word in words]
        assert main([*words, f"out=run{place}"]) == 0
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
        ("most_room.py", "left.index(max(left))", "len(left)", "MostRoom at 0.0052 s: route returned 2; expected"),
    ],
)
def test_a_mistake_in_a_router_is_one_line(router, file, old, new, said):
    text = (router / file).read_text()
    assert old in text
    (router / file).write_text(text.replace(old, new))
    own = {"router": "./most_room.yaml", "plugins": ["./most_room.py"], "replicas": 2, "requests": 20}
    assert said in refusal(simulate, "continuous", "poisson", **own)


FAST = ("traces", "slo", "import", "closed-loops")
LONG, SHORT = '"requests": 2000', '"requests": 100'
"""An example of a minute is tested with fewer requests."""


def consoles(text):
    """Yield each command of a console block and the lines shown behind it."""
    for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = each.splitlines()
        yield shlex.split(command), shown


@pytest.mark.parametrize(
    "name",
    [*FAST, *(pytest.param(each, marks=pytest.mark.slow) for each in ("acceptance", "your-acceptance", "drafters"))],
)
def test_the_examples_of_a_page_run(here, capsys, name):
    runs = 0
    for kind, text in blocks(page(name)):
        if kind in ("yaml", "python"):
            (named,) = re.findall(r"\A# (\w+\.\w+)\n", text)
            (here / named).write_text(text.replace(LONG, SHORT))
            continue
        if kind == "toml":  # tests/e2e/test_your_scheduler.py installs it.
            continue
        assert kind == "console"
        for command, shown in consoles(text):
            if command[0] == "cat":
                (here / command[1]).write_text("".join(f"{line}\n" for line in shown))
            elif command[0] == "python":
                runpy.run_path(command[1])
            else:
                runs += 1
                capsys.readouterr()
                words = [each.replace("requests=500", "requests=70") for each in command[1:]]
                given = words[0] != "run" or any(each.startswith("out=") for each in words)
                assert main(words if given else [*words, f"out=run{runs}"]) == 0
                said = capsys.readouterr().out.splitlines()
                assert [line for line in shown if line not in said] == []
    assert runs


def keys_of(name):
    return set(re.findall(r"`(\w+)`", page(name)))


def test_every_key_and_column_that_is_read_stands_on_its_page():
    classes = (*slo.OBJECTIVES, "share", "acceptance", "scaled")
    assert {*slo.MIX_KEYS, *classes, "classes"} <= keys_of("slo")
    of_acceptance = keys_of("acceptance") | keys_of("your-acceptance")
    assert {"kind", "path", "categories", "width", "alpha", "levels", *positions.KNOBS} <= of_acceptance
    assert {f"acceptance.{CONFIDENCE}.{each}" for each in KEYS} <= set(re.findall(r"[\w.]+", page("acceptance")))
    assert {*Curve.__slots__, *loading.KINDS.built_in} - {"chain"} <= of_acceptance
    assert {*COLUMNS, DEPTH} <= keys_of("your-acceptance")
    drafters = (drafter.Separate, drafter.Lookup, drafter.LayersSkipped, drafter.Heads)
    keys = {key for kind in drafters for key in kind.__slots__} - {"name"} | set(drafter.KINDS.built_in)
    assert keys <= keys_of("drafters")
    assert set(re.findall(r"`([\w .]+)`", page("traces") + page("trace-formats"))) >= KNOWN
