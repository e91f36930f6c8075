"""AdaServe's own workloads (EuroSys '26, figures 8-11, 14, 15): the artifact's JSON, or all in one Parquet.

Source: github.com/zikun-li/AdaServe-Artifact-Evaluation, ``exps/fig*/emission_*.json``. The authors give
three classes by ``slo_ratio``: above 0 a multiple of the baseline latency, below 0 milliseconds per token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from specsim.errors import SpecsimError
from specsim.workload import columns
from specsim.workload.columns import Rows
from specsim.workload.damage import Damage, shown, text
from specsim.workload.trace import Floats, Ints, Trace, TraceSource
from specsim.workload.user_file import parquet_columns

CLASSES = ("coding", "chat", "summarization")
CODE_OF_MS = {-50.0: 1, -150.0: 2}
# Measured by the data collectors on the prompts that have both lengths; used where only characters are known.
CHARACTERS_PER_TOKEN = (3.4, 4.6, 4.6)
FIELDS = ("emission_time_ms", "slo_ratio", "input_length", "output_length")


def read_adaserve_parquet(file: Path, workload: str, source: TraceSource) -> Trace:
    """Return the rows of the collected ``requests.parquet`` whose ``trace`` column is ``workload``.

    Raises
    ------
    SpecsimError
        When the file is damaged or holds no such workload.
    """
    names = (*FIELDS, "trace", "input_length_unit", "input_tokens")
    cells = parquet_columns(file, names)
    mine = [i for i, name in enumerate(cells["trace"]) if name == workload]
    if not mine:
        raise SpecsimError(f"{file}: no row of the workload {workload!r}")
    chosen = {name: [cells[name][i] for i in mine] for name in names}
    counted = [unit != "chars" for unit in chosen["input_length_unit"]]
    known = [
        length if token else given
        for length, token, given in zip(chosen["input_length"], counted, chosen["input_tokens"], strict=True)
    ]
    rows = Rows([i + 1 for i in mine], Damage(file, "row"))
    return _trace(chosen, known, rows, source)


def read_adaserve_json(file: Path, source: TraceSource) -> Trace:
    """Return one ``emission_*.json`` of the artifact: a list of objects with ``FIELDS`` and ``prompt``.

    A file whose ``input_length`` is the length of the prompt text in every row (figure 14) counts characters.

    Raises
    ------
    SpecsimError
        When the file is not such a list, or entries are damaged (counted from 1).
    """
    try:
        records = json.loads(text(file))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "line 1"
        raise SpecsimError(f"{file}: {where}: not JSON, damaged or cut") from None
    if not isinstance(records, list) or not records:
        raise SpecsimError(f"{file}: expected a list of requests with {', '.join(FIELDS)}")
    rows = Rows(range(1, len(records) + 1), Damage(file, "entry"))
    for place, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            rows.damage.add(place, f"{shown(record)} is not an object")
    rows.damage.check()
    cells = {name: [record.get(name) for record in records] for name in FIELDS}
    characters = all(record.get("input_length") == len(str(record.get("prompt"))) for record in records)
    known = [None] * len(records) if characters else cells["input_length"]
    return _trace(cells, known, rows, source)


def _trace(cells: dict[str, list[object]], known: Sequence[object], rows: Rows, source: TraceSource) -> Trace:
    arrival_s = columns.arrivals(cells["emission_time_ms"], "emission_time_ms", rows) / 1000
    code, ratio, seconds = _slo(cells["slo_ratio"], rows)
    length = columns.tokens(cells["input_length"], "input_length", rows)
    prompt, note = _prompt_tokens(known, length, code)
    output = columns.tokens(cells["output_length"], "output_length", rows)
    rows.damage.check()
    trace = columns.trace(arrival_s, prompt, output, replace(source, note=note))
    return replace(trace, slo_class=code, slo_names=CLASSES, tpot_slo_s=seconds, tpot_slo_ratio=ratio)


def _slo(cells: Sequence[object], rows: Rows) -> tuple[Ints, Floats, Floats]:
    code = np.zeros(len(cells), np.int64)
    ratio = np.full(len(cells), np.nan)
    seconds = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        value = columns.number(cell)
        if value is not None and value > 0:
            ratio[i] = value
        elif value in CODE_OF_MS:
            code[i], seconds[i] = CODE_OF_MS[value], -value / 1000
        else:
            rows.damage.add(rows.numbers[i], f"slo_ratio {shown(cell)} is not above 0, -50 or -150")
    return code, ratio, seconds


def _prompt_tokens(known: Sequence[object], length: Ints, code: Ints) -> tuple[Ints, str | None]:
    unknown = np.array([cell is None for cell in known])
    if not unknown.any():
        return length, None
    estimate = np.maximum(1, np.rint(length / np.array(CHARACTERS_PER_TOKEN)[code])).astype(np.int64)
    given = np.array([cell if isinstance(cell, int) else 0 for cell in known], np.int64)
    note = (
        f"{int(unknown.sum())} of {len(known)} prompt lengths are estimated from characters"
        f" ({CHARACTERS_PER_TOKEN[0]:g} per token for code, {CHARACTERS_PER_TOKEN[1]:g} for text)"
    )
    return np.where(unknown, estimate, given), note
