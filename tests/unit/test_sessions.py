"""Sessions: what a trace says of conversations reaches the router."""

import numpy as np
import pandas as pd
import pytest

from specsim import simulate
from specsim.workload.load import resample
from specsim.workload.user_file import trace_of
from tests.made import refusal

OWN = ("arrival_s", "prompt_tokens", "output_tokens")
BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
TIMED = ("timestamp", "input_length", "output_length")


def trace(columns, **more):
    """Return a trace of requests a second apart, 10 tokens in and 5 out, with further columns."""
    count = len(next(iter(more.values())))
    rows = dict(zip(columns, (np.arange(count) * 1.0, [10] * count, [5] * count), strict=True)) | more
    return trace_of(rows, "t", time_unit="s")


@pytest.mark.parametrize(("columns", "name"), [(OWN, "session_id"), (BURSTGPT, "Session ID"), (TIMED, "session_id")])
def test_requests_of_one_name_share_a_session(columns, name):
    found = trace(columns, **{name: ["a", "b", "a", None, "", " b "]})
    assert found.session.tolist() == [0, 1, 0, 2, 3, 1]
    assert "4 sessions" in found.source.note
    for nothing in ("nan", -1, ""):
        assert trace(columns, **{name: [nothing, 7, nothing, 7]}).session.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("chats", "parents", "sessions"),
    [
        ([1, 2, 3, 50, 4, 51], [-1, -1, 1, 49, 3, 49], [0, 1, 0, 2, 0, 2]),
        ([1, 2, 3], [None, np.nan, 1.0], [0, 1, 0]),
        ([1, None, 3, None], [-1, 1, "nan", "None"], [0, 0, 1, 2]),
    ],
)
def test_a_reply_is_of_the_session_of_its_parent(chats, parents, sessions):
    """As Bailian's files have it: -1 begins a conversation; that of 50 and 51 began before the file."""
    assert trace(TIMED, chat_id=chats, parent_chat_id=parents).session.tolist() == sessions
    half = trace(TIMED, chat_id=chats)
    assert half.session is None
    assert "chat_id is not read: sessions need chat_id and parent_chat_id" in half.source.note
    # The request between has failed.
    lengths = {"timestamp": [0.0, 1.0, 2.0], "input_length": [9, 9, 9], "output_length": [5, 0, 5]}
    assert trace_of(lengths | {"chat_id": [1, 2, 3], "parent_chat_id": [-1, 1, 2]}).session.tolist() == [0, 0]


AIPERF = {"session_id": ["s1", "s2", "s1", "s2"], "timestamp": [0, 700, None, None], "delay": [None, None, 1500, 800]}
AIPERF |= {"input_length": [300, 200, 420, 330], "output_length": [60, 50, 40, 20]}
"""Two sessions of two turns; their prompts hold the 360 and 250 tokens before them."""


def frame(**more):
    return pd.DataFrame(AIPERF | more)


def test_a_turn_arrives_its_delay_after_the_answer_before_it():
    done = simulate("continuous", frame(), seed=0, out=None)
    arrival_s, finish_s = done.requests["arrival_s"].to_numpy(), done.requests["finish_s"].to_numpy()
    assert arrival_s.tolist() == [0.0, finish_s[0] + 1.5, 0.7, finish_s[2] + 0.8]
    assert any("2 turns arrive a delay after the answer before, 1.15 s in the mean" in note for note in done.notes)
    ours = pd.DataFrame({OWN[0]: [0, None], OWN[1]: [9, 40], OWN[2]: [5, 5], "session_id": 1, "delay_ms": [None, 1500]})
    assert np.nansum(trace_of(ours).delay_s) == 1.5
    said = "unknown column 'ttft_slo_ms'; did you mean 'ttft_slo_s', in seconds?"
    assert refusal(trace_of, ours.assign(ttft_slo_ms=9)).endswith(said)
    unnamed = refusal(trace_of, ours.rename(columns={"session_id": "conversation"}))
    assert unnamed.endswith("and some arrivals are empty; expected trace.columns={session_id: YOURS}")
    assert any("4 requests; with an arrival of their own: 2 requests in 0.7 s, 1.43/s" in note for note in done.notes)
    assert done.requests[["trace_row", "session"]].to_numpy().tolist() == [[0, 0], [2, 0], [1, 1], [3, 1]]


CROWD = {"profile": "llama8b_eagle3_h100", "slo": "one", "slo__ttft_s": None, "trace__turns": "whole"}


def crowd(prompt_tokens, output_tokens):
    """Return 24 sessions that each send a turn while one request is there, whose row is the last of the trace."""
    first = {"session_id": range(24), "arrival_s": np.arange(24) / 100, "prompt_tokens": prompt_tokens}
    later = first | {"arrival_s": None, "delay_s": 0.9, "output_tokens": output_tokens}
    alone = {"session_id": [24], "arrival_s": 0.6, "prompt_tokens": 100, "output_tokens": output_tokens}
    return pd.concat([pd.DataFrame(each) for each in (first | {"output_tokens": 5}, later, alone)])


NAMES = ["vllm", "adaserve", "fcfs", "priority", "laps_sd", "lp_sjf", "slos_serve", "smartspec"]


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_waits_behind_what_arrived_before_it_and_yields_its_cache_to_it(name):
    done = simulate(name, crowd(8000, 20), **CROWD).requests
    single = done[done["prompt_tokens"] == 100].iloc[0]
    after = done[done["arrival_s"] > single["arrival_s"]]
    assert len(after) > 20
    assert (after["first_token_s"] >= single["first_token_s"]).all()
    full = simulate(name, crowd(200, 300), profile__usable_kv_bytes=6 * 10**8, **CROWD).requests
    assert full["preemptions"][full["prompt_tokens"] == 100].item() == 0
    rows = {"session_id": [0, 0, 1, 2], "arrival_s": [0, None, 0.1, 0.25], "delay_s": [None, 0.26, None, None]}
    rows |= {"prompt_tokens": [9] + [8000] * 3, "output_tokens": [1, 9, 9, 9]}
    if name == "vllm":  # Two arrive in one step.
        ended = simulate(name, pd.DataFrame(rows), **CROWD).requests.sort_values("first_token_s")
        assert ended["trace_row"].tolist() == [0, 2, 3, 1]


def test_a_client_plays_a_session_and_then_the_next():
    stamped, asked = frame(timestamp=[0, 700, 1500, 9000], delay=None), {"trace__turns": "whole", "out": None}
    for turns, delay_s in (frame(timestamp=[None] * 4), (1.5, 0.8)), (stamped, (0, 0)):
        done = simulate("continuous", turns, concurrency=1, **asked).requests.sort_values("arrival_s")
        end_s = done["finish_s"].to_numpy()
        assert done["prompt_tokens"].tolist() == [300, 420, 200, 330]
        assert done["arrival_s"].tolist() == [0.0, end_s[0] + delay_s[0], end_s[1], end_s[2] + delay_s[1]]
        said = "concurrency: 3 is not a whole number between 1 and 2, the sessions"
        assert said in refusal(simulate, "continuous", turns, concurrency=3, **asked)


def test_sessions_begin_so_often_that_all_their_turns_come_at_the_rate():
    """Four requests of two sessions at 3 requests/s span 1 s of beginnings."""
    for given in (frame(), frame(timestamp=[None] * 4)):
        done = simulate("continuous", given, rps=3, out=None)
        assert sorted(done.requests["arrival_s"])[:2] == pytest.approx([0, 1])


def test_the_prompts_of_turns_are_whole_or_what_a_turn_adds():
    short = AIPERF | {"input_length": [300, 200, 100, 330]}
    assert "1 of 2 turns have prompts shorter than the texts before" in refusal(trace_of, short)
    assert trace_of(short, turns="whole").prompt_tokens.tolist() == [300, 100, 200, 330]
    assert trace_of(short, turns="added").prompt_tokens.tolist() == [300, 460, 200, 580]
    stamped = {name: short[name] for name in short if name != "delay"} | {"timestamp": [0, 900, 4000, 9000]}
    assert trace_of(stamped, turns="added", time_unit="ms").prompt_tokens.tolist() == [300, 200, 460, 580]
    alone = {"arrival_s": [0], "prompt_tokens": [5], "output_tokens": [6]}
    assert "trace.turns=added changes nothing" in refusal(trace_of, alone, turns="added")


def test_a_turn_finds_the_text_before_it_cached():
    """Blocks of 16 tokens: 22 whole ones of 300 tokens and 60 answered, 15 of 200 and 50, on the session's replica."""
    asked = {"prefix_caching": True, "block_tokens": 16, "replicas": 2, "router": "affinity", "out": None}
    done = simulate("continuous", frame(), **asked)
    assert done.metrics["specsim"]["prefix_cache_hits"] == 16 * (22 + 15)
    stamped = frame(timestamp=[0, 9000, 20_000, 30_000]).drop(columns="delay")
    of_log = simulate("continuous", stamped, trace__turns="whole", trace__time_unit="ms", **asked)
    assert of_log.metrics["specsim"]["prefix_cache_hits"] == 16 * (22 + 15)
    assert "; or trace.turns=whole, if each" in refusal(simulate, "continuous", stamped, trace__time_unit="ms", **asked)
    for tokens, blocks in ((299, 0), (310, 18)):  # Shorter than the prompt before it, or than that and its answer.
        shrinks = simulate("continuous", frame(input_length=[300, 200, tokens, 330]), trace__turns="whole", **asked)
        assert shrinks.metrics["specsim"]["prefix_cache_hits"] == 16 * (blocks + 15)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *(
            (lambda cell=cell: trace(OWN, session_id=[cell] * 2), f"row 1: session_id {cell} is neither a text nor a")
            for cell in (1.5, True, np.inf)
        ),
        (lambda: trace_of(frame(delay=[None, None, None, 800])), "index 2: neither an arrival nor a delay"),
        (lambda: trace_of(frame(timestamp=[0, 700, 900, None])), "index 2: delay 1500.0 and an arrival; expected one"),
        (lambda: trace_of(frame(timestamp=[0, *[None] * 3])), "index 1: the first turn of its session has no arrival"),
        (lambda: trace_of(frame(delay=[None, None, -5, 800])), "index 2: -5.0 is not a number of at least 0: delay"),
        (
            lambda: simulate("continuous", frame(), warmup=0.5, out=None),
            "warmup: turns of the trace's sessions arrive as answers come",
        ),
    ],
)
def test_a_cell_that_is_no_name_and_a_turn_that_cannot_be_placed_are_damage(call, said):
    assert said in refusal(call)


def test_a_session_of_two_blocks_is_two_sessions():
    names = [place // 10 for place in range(1000)]
    drawn = resample(trace(OWN, session_id=names), 50.0, seed=3)
    block = (drawn.arrival_s - drawn.arrival_s[0]) // 50.0
    for session in set(drawn.session.tolist()):
        turns = np.flatnonzero(drawn.session == session)
        assert turns[-1] - turns[0] == len(turns) - 1 <= 9
        assert block[turns[-1]] - block[turns[0]] <= 1
    assert len(set(drawn.session.tolist())) > 100


def test_affinity_keeps_conversations_together_and_spreads_them_over_the_replicas():
    asked = {"replicas": 4, "router": "affinity", "out": None}
    turns = trace(OWN, session_id=[place % 8 for place in range(80)])
    replica = simulate("continuous", turns, **asked).requests["replica"].to_numpy().reshape(10, 8)
    assert (replica == replica[0]).all()
    assert len(set(replica[0].tolist())) > 1
    told = simulate("continuous", "poisson", requests=5, **asked)
    assert any("router=affinity: trace 'poisson' names no sessions" in note for note in told.notes)
