"""Results of ``vllm bench serve --save-result``: one JSON object a load, in a file, list or line.

Each has ``--max-concurrency N`` or ``--request-rate R``.

``isl`` and ``osl`` are the mean lengths, ``total_input_tokens`` and ``total_output_tokens`` over ``completed``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from specsim.workload.columns import number
from specsim.workload.readers import Cells, Damage, Rows, Table, lines, utf8

BENCH, RATE = "max_concurrency", "request_rate"
NO_PAUSE = (inf, "inf")
TOTALS = {"isl": "total_input_tokens", "osl": "total_output_tokens"}
COLUMNS = ("isl", "osl", "concurrency", "rate", "requests", "mean_ttft_ms", "mean_tpot_ms")
KEYS = ("completed", *TOTALS.values(), "mean_ttft_ms", "mean_tpot_ms")
LENGTHS = ("input_lens", "output_lens")
SPECULATION = "spec_decode_acceptance_rate"


def results_in(raw: bytes, file: Path) -> Table | None:
    """Return the results in a file as a table of points, None where it holds none."""
    found = _objects(lines(utf8(raw)[0]).read())
    if not found or not all(
        isinstance(each, Mapping) and {"completed", *TOTALS.values()} & set(each) for each in found
    ):
        return None

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        rows = Rows(range(1, len(found) + 1), Damage(file, "result"), [])
        points = [_point(place, each, rows) for place, each in zip(rows.numbers, found, strict=True)]
        rows.damage.check()
        return {name: [each[name] for each in points] for name in wanted}, rows

    return Table(file, "results", COLUMNS, read)


def _objects(text: str) -> list[Any]:
    """Return the JSON values of a text: one, those of a list, or one a line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else [value]


def _point(place: int, result: Mapping[str, Any], rows: Rows) -> dict[str, object]:
    """Return the cells of one result; what is wrong in it is noted."""
    missing = [key for key in KEYS if key not in result]
    done = number(result.get("completed"))
    if missing:
        rows.damage.add(place, f"no {missing[0]}")
    elif done is None or done < 1:
        rows.damage.add(place, f"completed {result['completed']!r}; expected requests that were served")
    elif wrong := _wrong_load(result):
        rows.damage.add(place, wrong)
    elif SPECULATION in result:
        rows.damage.add(place, f"{SPECULATION}: the server speculates; expected one that does not")
    if result.get("failed"):
        rows.note(f"{rows.damage.file}: {result['failed']} requests failed; the means are of the others")
    if any(len(set(result[name])) > 1 for name in LENGTHS if isinstance(result.get(name), list)):
        rows.note(f"{rows.damage.file}: lengths vary; every request is taken to have their means")
    cells: dict[str, object] = {key: result.get(key) for key in KEYS}
    for name, total in TOTALS.items():
        held = number(result.get(total))
        cells[name] = result.get(total) if held is None or not done else round(held / done)
    rate = result.get(RATE)
    return {**cells, "concurrency": result.get(BENCH), "rate": rate, "requests": result.get("completed")}


def _wrong_load(result: Mapping[str, Any]) -> str | None:
    """Return what is wrong with how requests were sent."""
    clients, rate = result.get(BENCH), result.get(RATE, inf)
    if clients is None and rate in NO_PAUSE:
        return f"no {BENCH} and {RATE} inf: all requests at once; expected --max-concurrency N or --request-rate R"
    if clients is not None and rate not in NO_PAUSE:
        return f"{RATE} {rate} and {BENCH} {clients}; expected one of them"
    if rate not in NO_PAUSE and result.get("burstiness", 1.0) != 1.0:
        return f"burstiness {result['burstiness']}; expected 1, a Poisson process"
    return None
