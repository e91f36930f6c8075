"""Turns of sessions that arrive a delay after the answer before: their arrivals, prompts and common blocks."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from specsim.core.request import Floats, Ints, Prefixes
from specsim.errors import SpecsimError
from specsim.workload.columns import not_a_number, number
from specsim.workload.formats import ARRIVAL, DELAYS, SESSIONS
from specsim.workload.readers import Cells, Rows, shown
from specsim.workload.trace import Trace

Turns = Literal["whole", "added"]
"""The prompts of a session's turns: all that is sent, or what a turn adds to the texts before it."""
TURNS: tuple[Turns, ...] = get_args(Turns)


def delays(cells: Cells, session: Ints | None, rows: Rows) -> tuple[Cells, Floats | None]:
    """Return seconds from an answer to the next turn, (N,), NaN where a request arrives by itself; None: no column.

    A turn has a delay or an arrival. In the cells that are returned, a turn with a delay has the arrival of the turn
    before it; no cell of arrivals is left where all were empty. A turn with neither or both is noted as damage.
    """
    column = next((name for name in DELAYS if name in cells), None)
    if column is None:
        return cells, None
    if session is None:
        rows.note(f"{column} is not read: no {SESSIONS[0]} tells whose turns they are")
        return cells, None
    arrivals = list(cells.get(ARRIVAL, [None] * len(rows.numbers)))
    timed, seen = not all(map(_empty, arrivals)), dict[int, object]()
    seconds = np.full(len(arrivals), np.nan)
    for place, (name, row) in enumerate(zip(session.tolist(), rows.numbers, strict=True)):
        cell, first = cells[column][place], name not in seen
        if first or not _empty(arrivals[place]):
            if timed and _empty(arrivals[place]):
                rows.damage.add(row, f"the first turn of its session has no arrival; expected one beside {column}")
            if not first and not _empty(cell):
                rows.damage.add(row, f"{column} {shown(cell)} and an arrival; expected one of them")
        else:
            arrivals[place], value = seen[name], number(cell)
            if value is None or value < 0:
                wrong = "neither an arrival nor a" if _empty(cell) else not_a_number(cell, "a number of at least 0:")
                rows.damage.add(row, f"{wrong} {column}")
            seconds[place] = DELAYS[column] * max(value or 0.0, 0.0)
        seen[name] = arrivals[place]
    rest = {role: each for role, each in cells.items() if role != ARRIVAL}
    return ({**rest, ARRIVAL: arrivals} if timed else rest), seconds


def _empty(cell: object) -> bool:
    return cell is None or cell == "" or cell != cell


def whole_prompts(trace: Trace, turns: Turns | None, file: Path, rows: Rows) -> Trace:
    """Return a trace whose prompts are all that is sent; the content tells whether they are where `turns` does not.

    Raises
    ------
    SpecsimError
        When prompts neither hold all texts before them nor does the user say what they are.
    """
    before, prompt, output = trace.before, trace.prompt_tokens, trace.output_tokens
    waits = np.flatnonzero(trace.waits)
    if turns is not None and not len(waits):
        raise SpecsimError(f"{file}: trace.turns={turns} changes nothing: no turn waits for an answer")
    if not len(waits):
        return trace
    rows.note(f"{len(waits):,} turns arrive a delay after the answer before")
    short = int(np.count_nonzero(prompt[waits] < (prompt + output)[before[waits]]))
    if short and turns is None:
        raise SpecsimError(
            f"{file}: {short:,} of {len(waits):,} turns have prompts shorter than the texts before them: set "
            "trace.turns=added, if each tells what its turn adds (aiperf), or whole, if it is all that is sent (Dynamo)"
        )
    if turns != "added":
        return trace
    prompt = prompt.copy()
    for place in waits.tolist():  # A turn stands behind the one before it.
        prompt[place] += prompt[before[place]] + output[before[place]]
    rows.note("prompts are the texts before a turn and what it adds")
    return replace(trace, prompt_tokens=prompt)


def prefixes_of_turns(trace: Trace, block_tokens: int) -> Prefixes:
    """Return hashes of the prompts' blocks where each turn's prompt begins with the prompt before it.

    A turn whose prompt is shorter than the one before it, as after a compaction, shares nothing.
    """
    before, tokens, used = trace.before, trace.prompt_tokens.tolist(), 0
    lists: list[Ints] = []
    for place, behind in enumerate(before.tolist()):
        grows = behind >= 0 and tokens[place] >= tokens[behind]
        shared = lists[behind][: tokens[behind] // block_tokens] if grows else np.empty(0, np.int64)
        own = ceil(tokens[place] / block_tokens) - len(shared)
        lists.append(np.concatenate((shared, np.arange(used, used + own))))
        used += own
    count = np.array([len(each) for each in lists], dtype=np.int64)
    return Prefixes(np.concatenate(lists), np.cumsum(count) - count, count, block_tokens)
