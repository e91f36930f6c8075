"""A shipped recording as tables for figures: acceptance by confidence, and accepted tokens of chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profiler.acceptance.curves import BINS, by_confidence, each_round, on_path
from profiler.acceptance.lengths import clustered_error
from profiler.acceptance.tape_file import Recorded, read_tape
from specsim.config.groups import names
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped

if TYPE_CHECKING:
    from pandas import DataFrame

Z = 1.96
"""Half widths of 95% intervals in standard errors."""


def shipped_recording(name: str) -> Recorded:
    """Return the recording that ``acceptance=NAME`` reads.

    Raises
    ------
    SpecsimError
        When no recording of that name ships.
    """
    path = shipped("conf") / "acceptance" / f"{name}.parquet"
    if not path.is_file():
        there = [each for each in names("acceptance") if path.with_stem(each).is_file()]
        raise SpecsimError(f"no recording {name!r} ships; expected one of {', '.join(there)}")
    return read_tape(path)


def confidence_table(name: str) -> DataFrame:
    """Return a row per bin of confidence of a shipped recording, all categories together.

    Columns: ``pair`` (the name), ``temperature``, ``confidence`` (mean), ``accepted`` (share right), ``half_width`` (of
    its 95% interval, by texts), ``proposals``. A bin without a proposal has no row.
    """
    from pandas import DataFrame

    tape = shipped_recording(name)
    every = [on_path(tape, category) for category in tape.categories]
    made = np.concatenate([each.proposed for each in every])
    confidence = np.concatenate([each.confidence for each in every])[made]
    right = np.concatenate([each.right for each in every])[made]
    # Texts are numbered within their category.
    text = np.concatenate([place + len(every) * each.text for place, each in enumerate(every)])[made]
    bins = by_confidence(confidence, right)
    which = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    found = []
    for place in np.flatnonzero(bins.rows):
        inside = which == place
        reach = Z * clustered_error(right[inside].astype(np.int64), text[inside])
        numbers = float(bins.confidence[place]), float(bins.accepted[place]), reach, int(bins.rows[place])
        found.append((name, float(tape.about["temperature"]), *numbers))
    return DataFrame(found, columns=["pair", "temperature", "confidence", "accepted", "half_width", "proposals"])


def chain_table(name: str, longest: int = 8) -> DataFrame:
    """Return a row per category and length of chain of a shipped recording, each text verified in rounds.

    A round begins behind the bonus token of the one before, as on a server: easy stretches, which many tokens pass at
    once, are met less often than by position. Columns: ``category``, ``draft_tokens`` (1 to `longest`),
    ``accepted_tokens`` (mean of a round), ``half_width`` (of its 95% interval, by texts), ``rounds``.
    """
    from pandas import DataFrame

    tape, found = shipped_recording(name), []
    for category in tape.categories:
        rows = on_path(tape, category)
        for draft_tokens in range(1, longest + 1):
            accepted, text = each_round(rows, draft_tokens)
            reach = Z * clustered_error(accepted, text)
            found.append((category, draft_tokens, float(accepted.mean()), reach, len(accepted)))
    return DataFrame(found, columns=["category", "draft_tokens", "accepted_tokens", "half_width", "rounds"])
