"""AdaServe's workloads (EuroSys '26, figures 8-11, 14, 15), from the artifact's JSON or from one Parquet file.

Source: github.com/zikun-li/AdaServe-Artifact-Evaluation, ``exps/fig*/emission_*.json``. The authors give
three classes by ``slo_ratio``: above 0 a multiple of the baseline latency, below 0 milliseconds per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.workload import columns
from specsim.workload.arrivals import read_clock
from specsim.workload.readers import Cells, Rows, content, open_parquet, shown
from specsim.workload.trace import Ints, Trace, TraceSource

CLASSES = ("coding", "chat", "summarization")
CODE_OF_MS = {-50.0: 1, -150.0: 2}
# Measured by the collectors of the data on prompts with both lengths; used for prompts with characters alone.
CHARACTERS_PER_TOKEN = (3.4, 4.6, 4.6)
FIELDS = ("emission_time_ms", "slo_ratio", "input_length", "output_length")
COLLECTED = (*FIELDS, "trace", "input_length_unit", "input_tokens")


def read_adaserve_parquet(file: Path, workload: str, source: TraceSource) -> Trace:
    """Return the rows of the collected ``requests.parquet`` whose ``trace`` column is ``workload``.

    Raises
    ------
    SpecsimError
        When the file is damaged or holds no such workload.
    """
    table = open_parquet(content(file), file)
    for name in COLLECTED:
        if name not in table.names:
            raise SpecsimError(f"{file}: no column {name!r}{nearest(name, table.names)}")
    cells, rows = table.read(COLLECTED)
    mine = [place for place, name in enumerate(cells["trace"]) if name == workload]
    if not mine:
        raise SpecsimError(f"{file}: no row of the workload {workload!r}")
    cells = {name: [column[place] for place in mine] for name, column in cells.items()}
    rows = rows._replace(numbers=[place + 1 for place in mine])
    clock = read_clock(cells["emission_time_ms"], "emission_time_ms", rows, "ms")
    optional = objectives(cells, rows)
    length, output = (columns.tokens(cells[name], name, rows) for name in FIELDS[2:])
    rows.damage.check()
    counted = zip(length.tolist(), cells["input_length_unit"], cells["input_tokens"], strict=True)
    known = [tokens if unit == "chars" else count for count, unit, tokens in counted]
    prompt, note = _estimated(known, length, optional["slo_class"])
    row = np.arange(len(mine), dtype=np.int64)
    return columns.trace(clock.since_s, prompt, output, row, replace(source, note=note), optional)


def objectives(cells: Cells, rows: Rows) -> dict[str, Any]:
    """Return the authors' classes and TPOT SLOs as fields of a `Trace`."""
    ratios = cells["slo_ratio"]
    code = np.zeros(len(ratios), np.int64)
    ratio = np.full(len(ratios), np.nan)
    seconds = np.full(len(ratios), np.nan)
    for i, cell in enumerate(ratios):
        value = columns.number(cell)
        if value is not None and value > 0:
            ratio[i] = value
        elif value in CODE_OF_MS:
            code[i], seconds[i] = CODE_OF_MS[value], -value / 1000
        else:
            rows.damage.add(rows.numbers[i], f"slo_ratio {shown(cell)} is not above 0, -50 or -150")
    return {"slo_class": code, "slo_names": CLASSES, "tpot_slo_s": seconds, "tpot_slo_ratio": ratio}


def prompt_tokens(texts: Sequence[object] | None, length: Ints, code: Ints) -> tuple[Ints, str | None]:
    """Return prompt lengths (N,) in tokens of one of the artifact's files, and a note about them.

    A file whose ``input_length`` is the length of the ``prompt`` text in every row (figure 14) counts characters.
    """
    if texts is None:
        return length, None
    characters = all(count == len(str(text)) for count, text in zip(length.tolist(), texts, strict=True))
    return _estimated([None] * len(length), length, code) if characters else (length, None)


def _estimated(known: Sequence[object], length: Ints, code: Ints) -> tuple[Ints, str | None]:
    unknown = np.array([count is None for count in known])
    if not unknown.any():
        return length, None
    estimate = np.maximum(1, np.rint(length / np.array(CHARACTERS_PER_TOKEN)[code])).astype(np.int64)
    given = np.array([count if isinstance(count, int) else 0 for count in known], np.int64)
    note = (
        f"{int(unknown.sum())} of {len(known)} prompt lengths are estimated from characters"
        f" ({CHARACTERS_PER_TOKEN[0]:g} per token for code, {CHARACTERS_PER_TOKEN[1]:g} for text)"
    )
    return np.where(unknown, estimate, given), note
