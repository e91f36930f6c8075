"""The block `load` in words: a line if a run is overloaded, too short or not steady."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log10
from typing import Any, NamedTuple

from specsim.results.load import EVIDENT_RATIO, TARGET_HALF_WIDTH


class Recorded(NamedTuple):
    """A trace that ends: how many requests it holds, and what gives more of them, if anything does."""

    requests: int
    cure: str


def load_notes(block: Mapping[str, Any], counted: int, recorded: Recorded | None = None) -> tuple[str, ...]:
    """Return the notes of a run, each ``KIND: reason``; none if all is well. `counted` requests are in the metrics."""
    return tuple(_with_end(note, block, recorded) for note in _notes(block, counted))


def _with_end(note: str, block: Mapping[str, Any], recorded: Recorded | None) -> str:
    """Return the note; where it advises more requests than the trace holds, with that number."""
    needed = block["needed_requests"]
    if recorded is None or needed is None or needed <= recorded.requests or not note.startswith("too short"):
        return note
    return f"{note}, but the trace holds {recorded.requests:,}{recorded.cure and f': {recorded.cure}'}"


def _notes(block: Mapping[str, Any], counted: int) -> tuple[str, ...]:
    if block.get("clients") is not None:
        return _closed(block, counted)
    if block["overloaded"]:
        return (f"OVERLOADED: {_excess(block)}",)
    crowded = [f"near saturation: {_crowd(block)}"] if block.get("saturated") else []
    if block["steady"] is None and not block["too_short"]:
        return ()  # All arrive at one time, and are done.
    if block["steady"] is None:
        return (*crowded, f"too short: {_unjudged(block, counted)}")
    notes = crowded
    if block["too_short"]:
        half, goal = (100 * each for each in (block["attainment_half_width"], TARGET_HALF_WIDTH))
        known = f"slo_attainment is known to +-{half:.1f} points (95%)"
        notes.append(f"too short: {known}; +-{goal:g} take about {_needed(block)}")
    if not block["steady"]:
        rate = _rate(-block["backlog_trend_per_s"], *(-each for each in block["backlog_trend_interval_per_s"][::-1]))
        notes.append(f"not steady: the backlog falls by {rate}; warmup=SECONDS leaves the beginning out")
    return tuple(notes)


def _closed(block: Mapping[str, Any], counted: int) -> tuple[str, ...]:
    if not block["too_short"]:
        return ()
    if block["needed_requests"] is None:
        return (f"too short: slo_attainment cannot be judged by {counted} requests",)
    half, goal = (100 * each for each in (block["attainment_half_width"], TARGET_HALF_WIDTH))
    known = f"slo_attainment is known to +-{half:.1f} points (95%)"
    return (f"too short: {known}; +-{goal:g} take about {block['needed_requests']:,} requests",)


def _excess(block: Mapping[str, Any]) -> str:
    turned = block.get("turned_away") or 0
    if turned > block["last_backlog"]:
        return f"{turned:,} requests were shed, or cancelled while others held them up"
    return f"{_growth(block)}; figures of a longer run would differ"


def _growth(block: Mapping[str, Any]) -> str:
    if block["backlog_grows"]:
        rate = _rate(block["backlog_trend_per_s"], *block["backlog_trend_interval_per_s"])
        return f"the backlog grows by {rate} to {block['last_backlog']} requests at the last arrival"
    if block["makespan_ratio"] <= EVIDENT_RATIO and block["backlog_grows"] is None:
        return f"the queue for the first token grows; {block['last_backlog']} requests are there at the last arrival"
    return (
        f"the last request ends {block['drain_s']:.3g} s after the last arrival, "
        f"which makes {block['makespan_ratio']:.3g} times the arrivals' span"
    )


def _crowd(block: Mapping[str, Any]) -> str:
    times = block["mean_backlog"] / block["alone_backlog"]
    return (
        f"the server was hardly idle, {block['last_backlog']} requests were there at the last arrival, and there were "
        f"{times:.0f} times as many as if each were served alone; attainment may fall as the run gets longer"
    )


def _unjudged(block: Mapping[str, Any], counted: int) -> str:
    if block["makespan_ratio"] is None:
        return "no request was let in: no load can be read from them"
    return (
        f"{counted} requests in {block['arrival_span_s']:.3g} s of arrivals; the longest alone takes "
        f"{block['longest_alone_s']:.3g} s and the last ends {block['drain_s']:.3g} s after the last arrival: "
        f"load and attainment cannot be judged; expected {_needed(block)} or more"
    )


def _needed(block: Mapping[str, Any]) -> str:
    """Return the needed length in two digits, requests rounded up."""
    requests, seconds = block["needed_requests"], float(f"{block['needed_s']:.2g}")
    digit = 10 ** max(0, int(log10(requests)) - 1)
    return f"{ceil(requests / digit) * digit:,} requests ({seconds:,.12g} s)"


def _rate(per_s: float, low_per_s: float, high_per_s: float) -> str:
    return f"{per_s:.2g} requests/s ({low_per_s:.2g} to {high_per_s:.2g}, 95%)"
