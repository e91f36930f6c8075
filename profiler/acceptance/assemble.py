"""One recording from the rows of many texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.acceptance.batches import Text
from profiler.acceptance.rows import TapeRows, joined
from profiler.acceptance.tape_file import Recorded
from specsim.acceptance.recorded import ON_PATH
from specsim.core.request import Floats, Ints

MATCHES = (1, 2, 3, 4, 6, 9, 13)
"""The shortest match of each bucket of a lookup."""


def assemble(rows: Mapping[Text, TapeRows], about: Mapping[str, Any], *, lookup: bool) -> Recorded:
    """Return the recording of all texts, sorted; a lookup's confidences become measured frequencies.

    ``long_matches`` in a lookup's metadata is the share of positions behind a match of the longest bucket, where text
    repeats itself or its prompt.
    """
    texts = sorted(rows)
    names = tuple(sorted({category for category, _ in texts}))
    whole = joined([rows[text] for text in texts])
    counts = [len(rows[text].rank) for text in texts]
    category = np.repeat([names.index(name) for name, _ in texts], counts)
    sequence = np.repeat([number for _, number in texts], counts)
    confidence = _calibrated(category, whole) if lookup else whole.confidence
    order = np.lexsort((whole.position, whole.path, sequence, category))
    on = whole.path == ON_PATH
    told = dict(about) | {
        "sequences": {name: sum(each == name for each, _ in texts) for name in names},
        "tokens": {name: int((on & (category == code)).sum()) for code, name in enumerate(names)},
    }
    if lookup:
        long = whole.match >= MATCHES[-1]
        told["long_matches"] = {
            name: round(float(long[on & (category == code)].mean()), 4) for code, name in enumerate(names)
        }
    return Recorded(
        told,
        names,
        category[order],
        sequence[order],
        whole.position[order],
        whole.path[order],
        confidence[order],
        whole.rank[order],
        whole.target_probability[order],
        whole.overlap[order],
    )


def bucket(match: Ints) -> Ints:
    """Return the bucket of each match length (n,); 0 without a match."""
    found: Ints = np.searchsorted(MATCHES, match, side="right")
    return found


def _calibrated(category: Ints, rows: TapeRows) -> Floats:
    """Return confidences (n, K) equal to the acceptance of matches of the same length and category, in-sample.

    Rows off the path have the same numbers. Matches of a length that is not on the path have 0.
    """
    cell = category * (len(MATCHES) + 1) + bucket(rows.match)
    on = rows.path == ON_PATH
    made = np.bincount(cell[on], minlength=int(cell.max()) + 1)
    right = np.bincount(cell[on], weights=rows.rank[on] == 0, minlength=len(made))
    rate = np.divide(right, made, out=np.zeros(len(made)), where=made > 0)
    confidence = np.zeros_like(rows.confidence)
    confidence[:, 0] = np.where(rows.match > 0, rate[cell], 0.0)
    return confidence
