"""Random passes, and by definition what each of their queries sees."""

import numpy as np
from hypothesis import strategies as st

from profiler.attention.packing import Work


@st.composite
def works(draw, rows=4, context=40, chunk=12, nodes=8):
    """Rows of any context from 0, a chunk or none, a tree, a chain, one node or none, part of it cached."""
    contexts, chunks, row, parent, cached = [], [], [], [], []
    for number in range(draw(st.integers(1, rows))):
        contexts.append(draw(st.integers(0, context)))
        size = draw(st.integers(0, nodes))
        first = len(parent)
        for place in range(size):
            behind = draw(st.integers(-1, place - 1))
            parent.append(behind if behind < 0 else first + behind)
        held = draw(st.integers(0, size))
        cached += [place < held for place in range(size)]
        row += [number] * size
        chunks.append(draw(st.integers(0 if held < size else 1, chunk)))
    return Work.of(contexts, chunks, row, parent, cached)


def seen_by_definition(work):
    """Yield (row, places of the keys seen) of each query, in order: context, chunk up to itself, then ancestors."""
    for row in range(work.rows):
        context, chunk = int(work.context[row]), int(work.chunk[row])
        for place in range(chunk):
            yield row, list(range(context + place + 1))
        mine = np.flatnonzero(work.node_row == row)
        for node in mine:
            if work.node_cached[node]:
                continue
            path, at = [], int(node)
            while at >= 0:
                path.append(context + chunk + int(np.searchsorted(mine, at)))
                at = int(work.node_parent[at])
            yield row, [*range(context + chunk), *sorted(path)]
