"""Sessions: which requests are turns of one, when turns arrive, and the blocks with which prompts begin alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from specsim.core.request import Floats, Ints, Prefixes
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import shown
from specsim.workload.columns import CHAT, PARENT, empty, is_empty, not_a_number, number
from specsim.workload.formats import ARRIVAL, DELAYS, HASHES, SESSIONS
from specsim.workload.readers import Cells, Findings
from specsim.workload.trace import Trace

if TYPE_CHECKING:
    from pandas import Series

NOTHING = frozenset({"", "-1", "nan", "none", "null"})
"""Texts in the place of a name that is missing; Bailian's first turns have the parent -1."""
WRITTEN_AS_FLOAT = re.compile(r"([+-]?[0-9]+)\.0+", re.ASCII)
"""A whole number in a column that has empty cells, as pandas writes it."""
FIRST = object()
BLOCKS = tuple(2**power for power in range(3, 13))
MOST = 2**63


def sessions(cells: Cells, found: Findings) -> Ints | None:
    """Return the session of each of N requests (N,), numbered from 0 as they appear; None where no column names any.

    A request whose cell is empty is a session of its own. By Bailian's columns a request is of the session of its
    parent, whether that is in the file or not. A cell that is no name is noted as damage.
    """
    for column in SESSIONS:
        if column in cells:
            return _numbered(_names(cells[column], found))
    both = CHAT, PARENT
    if all(column in cells for column in both):
        return _numbered(_conversations(*(_names(cells[column], found) for column in both)))
    for column in both:
        if column in cells:
            found.note(f"{column} is not read: sessions need {CHAT} and {PARENT}")
    return None


def _names(column: Series[Any], found: Findings) -> list[str | None]:
    """Return the text or whole number in each cell as a text, None for an empty one."""
    names: list[str | None] = []
    for row, cell in zip(column.index, column.tolist(), strict=True):
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        missing = is_empty(cell)
        if not missing and (isinstance(cell, bool) or not isinstance(cell, str | int)):
            found.add(row, f"{column.name} {shown(cell)} is neither a text nor a whole number")
        name = "" if missing else str(cell).strip()
        whole = WRITTEN_AS_FLOAT.fullmatch(name)
        name = whole[1] if whole else name
        names.append(None if name.lower() in NOTHING else name)
    return names


def _conversations(chats: Sequence[str | None], parents: Sequence[str | None]) -> list[str | int | None]:
    """Return a name for the conversation of each request, the same for all that parents join; None without a chat."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    code = {chat: place for place, chat in enumerate(dict.fromkeys((*chats, *parents)))}
    size, pairs = len(code), list(zip(chats, parents, strict=True))
    replies = [(code[chat], code[parent]) for chat, parent in pairs if chat is not None and parent is not None]
    ends = np.array(replies, dtype=np.int64).reshape(-1, 2).T
    joined = coo_array((np.ones(len(replies)), tuple(ends)), shape=(size, size))
    _, component = connected_components(joined, directed=False)
    named = [parent if chat is None else chat for chat, parent in pairs]
    return [None if chat is None else int(component[code[chat]]) for chat in named]


def _numbered(names: Sequence[str | int | None]) -> Ints:
    """Return the number of each name (N,); each None is a name of its own."""
    code: dict[str | int | tuple[int], int] = {}
    keys = ((place,) if name is None else name for place, name in enumerate(names))
    return np.array([code.setdefault(key, len(code)) for key in keys], dtype=np.int64)


def prefixes(column: Series[Any], prompt_tokens: Ints, found: Findings) -> Prefixes | None:
    """Return the hashes of N prompts, `prompt_tokens` (N,); None, with a note, where they are no lists of hashes.

    The tokens of a block are the power of two by which each prompt has as many hashes as it has blocks.
    """
    lists: list[list[int]] = []
    for entry, cell in column.items():
        ids = cell.tolist() if isinstance(cell, np.ndarray) else cell
        if not isinstance(ids, list) or not all(type(each) is int and -MOST <= each < MOST for each in ids):
            found.note(f"{HASHES} is not read: entry {entry} is no list of whole numbers")
            return None
        lists.append(ids)
    pairs = list(zip(lists, prompt_tokens.tolist(), strict=True))
    fitting = [block for block in BLOCKS if all(len(ids) == ceil(tokens / block) for ids, tokens in pairs)]
    if len(fitting) != 1:
        found.note(f"{HASHES} is not read: {len(fitting) or 'no'} sizes of a block fit the lengths of all prompts")
        return None
    if not _chained(ids[: tokens // fitting[0]] for ids, tokens in pairs):
        found.note(f"{HASHES} is not read: a hash stands behind two others; expected one for a block and all before it")
        return None
    count = np.array([len(each) for each in lists], dtype=np.int64)
    flat = np.array([each for ids in lists for each in ids], dtype=np.int64)
    return Prefixes(flat, np.cumsum(count) - count, count, fitting[0])


def _chained(lists: Iterable[list[int]]) -> bool:
    """Return whether each hash always stands behind the same one, or always first."""
    behind: dict[int, object] = {}
    for ids in lists:
        last: object = FIRST
        for each in ids:
            if behind.setdefault(each, last) != last:
                return False
            last = each
    return True


TurnPrompts = Literal["whole", "added"]
"""The prompts of a session's turns: all that is sent, or what a turn adds to the texts before it."""
TURNS: tuple[TurnPrompts, ...] = get_args(TurnPrompts)


def delays(cells: Cells, session: Ints | None, found: Findings) -> tuple[Cells, Floats | None]:
    """Return seconds from an answer to the next turn, (N,), NaN where a request arrives by itself; None: no column.

    A turn has a delay or an arrival. In the cells that are returned, a turn with a delay has the arrival of the turn
    before it; no cell of arrivals is left where all were empty. A turn with neither or both is noted as damage.
    """
    name = next((name for name in DELAYS if name in cells), None)
    if name is None:
        return cells, None
    delay, arrival = cells[name], cells.get(ARRIVAL)
    told = np.zeros(len(delay), np.bool_) if arrival is None else ~empty(arrival)
    if session is None:
        said = f"{name} is not read: no {SESSIONS[0]} tells whose turns they are"
        if arrival is not None and not told.all():
            raise SpecsimError(f"{said}, and some arrivals are empty; expected trace.columns={{{SESSIONS[0]}: YOURS}}")
        found.note(said)
        return cells, None
    seconds, arrives, seen = np.full(len(delay), np.nan), np.arange(len(delay)), dict[int, int]()
    for place, (turns_of, (row, cell)) in enumerate(zip(session.tolist(), delay.items(), strict=True)):
        first = turns_of not in seen
        if first or told[place]:
            if told.any() and not told[place]:
                found.add(row, f"the first turn of its session has no arrival; expected one beside {name}")
            if not first and not is_empty(cell):
                found.add(row, f"{name} {shown(cell)} and an arrival; expected one of them")
        else:
            arrives[place], value = seen[turns_of], number(cell)
            if value is None or value < 0:
                wrong = "neither an arrival nor a" if is_empty(cell) else not_a_number(cell, "a number of at least 0:")
                found.add(row, f"{wrong} {name}")
            seconds[place] = DELAYS[name] * max(value or 0.0, 0.0)
        seen[turns_of] = int(arrives[place])
    rest = {role: each for role, each in cells.items() if role != ARRIVAL}
    if arrival is not None and told.any():
        rest[ARRIVAL] = arrival.iloc[arrives].set_axis(delay.index)
    return rest, seconds


def whole_prompts(trace: Trace, turns: TurnPrompts | None, found: Findings) -> Trace:
    """Return a trace whose prompts are all that is sent; the content tells whether they are where `turns` does not.

    Where `turns` says so, stamped requests of a session are turns, too: they have a column of no delays.

    Raises
    ------
    SpecsimError
        When prompts neither hold all texts before them nor does the user say what they are.
    """
    stamped = turns is not None and not trace.waits.any()
    if stamped and (trace.session is None or not trace.source.timed):
        said = "no turn waits for an answer, and no session_id beside arrivals tells turns"
        raise SpecsimError(f"{found.file}: trace.turns={turns} changes nothing: {said}")
    trace = replace(trace, delay_s=np.full(len(trace), np.nan)) if stamped else trace
    before, prompt, output = trace.before, trace.prompt_tokens, trace.output_tokens
    waits = np.flatnonzero(before >= 0 if stamped else trace.waits)
    if not len(waits):
        return trace
    later = "when stamped"
    if not stamped and trace.delay_s is not None:
        later = f"a delay after the answer before, {trace.delay_s[waits].mean():.3g} s in the mean"
    found.note(f"{len(waits):,} turns arrive {later}")
    short = int(np.count_nonzero(prompt[waits] < (prompt + output)[before[waits]]))
    if short and turns is None:
        raise SpecsimError(
            f"{found.file}: {short:,} of {len(waits):,} turns have prompts shorter than the texts before them: set "
            "trace.turns=added, if each tells what its turn adds (aiperf), or whole, if it is all that is sent (Dynamo)"
        )
    if turns != "added":
        return trace
    prompt = prompt.copy()
    for place in waits.tolist():  # A turn stands behind the one before it.
        prompt[place] += prompt[before[place]] + output[before[place]]
    found.note("prompts are the texts before a turn and what it adds")
    return replace(trace, prompt_tokens=prompt)


def prefixes_of_turns(trace: Trace, block_tokens: int) -> Prefixes:
    """Return hashes of blocks where each turn's prompt begins with the prompt before it, and with its answer.

    A prompt that is too short for the answer shares the prompt before it alone. A prompt that is shorter than the one
    before it, as after a compaction, shares nothing.
    """
    prompts, texts = trace.prompt_tokens.tolist(), (trace.prompt_tokens + trace.output_tokens).tolist()
    lists, used = list[Ints](), 0
    for place, behind in enumerate(trace.before.tolist()):
        told = (texts[behind], prompts[behind]) if behind >= 0 else ()
        alike = next((each for each in told if each <= prompts[place]), 0) // block_tokens
        shared = lists[behind][:alike] if alike else np.empty(0, np.int64)
        own = ceil(texts[place] / block_tokens) - alike
        lists.append(np.concatenate((shared, np.arange(used, used + own))))
        used += own
    count = np.array([len(each) for each in lists], dtype=np.int64)
    return Prefixes(np.concatenate(lists), np.cumsum(count) - count, count, block_tokens, of_outputs=True)
