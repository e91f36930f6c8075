"""Hashes of the prompts' blocks, as Mooncake's traces name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np

from specsim.replica.request import Ints, Prefixes
from specsim.workload.formats import HASHES
from specsim.workload.table import Rows

FIRST = object()
BLOCKS = tuple(2**power for power in range(3, 13))
MOST = 2**63


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
