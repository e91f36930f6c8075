"""Shared by requests: turns of one conversation, and blocks with which prompts begin alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np

from specsim.core.request import Ints, Prefixes
from specsim.workload.arrivals import CHAT
from specsim.workload.formats import HASHES, PARENT, SESSIONS
from specsim.workload.readers import Cells, Rows, shown

NOTHING = frozenset({"", "-1", "nan", "none", "null"})
"""Texts in the place of a name that is missing; Bailian's first turns have the parent -1."""
WRITTEN_AS_FLOAT = re.compile(r"([+-]?[0-9]+)\.0+", re.ASCII)
"""A whole number in a column that has empty cells, as pandas writes it."""
FIRST = object()
BLOCKS = tuple(2**power for power in range(3, 13))
MOST = 2**63


def sessions(cells: Cells, rows: Rows) -> Ints | None:
    """Return the session of each of N requests (N,), numbered from 0 as they appear; None where no column names any.

    A request whose cell is empty is a session of its own. By Bailian's columns a request is of the session of its
    parent, whether that is in the file or not. A cell that is no name is noted as damage.
    """
    for column in SESSIONS:
        if column in cells:
            return _numbered(_names(cells[column], column, rows))
    both = CHAT, PARENT
    if all(column in cells for column in both):
        return _numbered(_conversations(*(_names(cells[column], column, rows) for column in both)))
    for column in both:
        if column in cells:
            rows.note(f"{column} is not read: sessions need {CHAT} and {PARENT}")
    return None


def _names(cells: Sequence[object], column: str, rows: Rows) -> list[str | None]:
    """Return the text or whole number in each cell as a text, None for an empty one."""
    names: list[str | None] = []
    for row, cell in zip(rows.numbers, cells, strict=True):
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        missing = cell is None or cell != cell
        if not missing and (isinstance(cell, bool) or not isinstance(cell, str | int)):
            rows.damage.add(row, f"{column} {shown(cell)} is neither a text nor a whole number")
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


def prefixes(cells: Sequence[object], prompt_tokens: Ints, rows: Rows) -> Prefixes | None:
    """Return the hashes of N prompts, `prompt_tokens` (N,); None, with a note, where they are no lists of hashes.

    The tokens of a block are the power of two by which each prompt has as many hashes as it has blocks.
    """
    lists: list[list[int]] = []
    for number, cell in zip(rows.numbers, cells, strict=True):
        ids = cell.tolist() if isinstance(cell, np.ndarray) else cell
        if not isinstance(ids, list) or not all(type(each) is int and -MOST <= each < MOST for each in ids):
            rows.note(f"{HASHES} is not read: entry {number} is no list of whole numbers")
            return None
        lists.append(ids)
    pairs = list(zip(lists, prompt_tokens.tolist(), strict=True))
    fitting = [block for block in BLOCKS if all(len(ids) == ceil(tokens / block) for ids, tokens in pairs)]
    if len(fitting) != 1:
        rows.note(f"{HASHES} is not read: {len(fitting) or 'no'} sizes of a block fit the lengths of all prompts")
        return None
    if not _chained(ids[: tokens // fitting[0]] for ids, tokens in pairs):
        rows.note(f"{HASHES} is not read: a hash stands behind two others; expected one for a block and all before it")
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
