"""Make the files of ``traces/`` from the real ones: Azure's surrogates, the toys, the table of differences.

    python tools/fit_surrogates.py --data DIR     # a folder that holds the real files, at any depth

The same files give the same rows. A surrogate keeps the real count of requests in every second and redraws the rest:

- *arrivals*: a second takes the spacings of another second with the same count and similar neighbours (idle or
  busy). The spacings are rotated, reversed half of the time, and jittered. A count that occurs once keeps its own
  spacings in another order. Bursts within milliseconds are kept, but not their times.
- *lengths*: a cell is about seven windows of 10 s that are close in time and similar in load (requests; prompt and
  output tokens per request). Pairs (prompt, output) are drawn from the cell's rank copula, jittered, and mapped
  through its smoothed quantile functions. Their order within the cell is random.

Of ``DRAWS`` such surrogates the one whose worst statistic is nearest to the real one is kept. Tails are not invented:
no length is outside the range that its cell has in the real trace.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from specsim.commands.parser import Parser, run
from specsim.errors import SpecsimError, say
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import read_yaml, shipped
from specsim.workload.load import trace_recipe
from specsim.workload.trace import Floats, Ints, Trace, TraceSource
from tools.describe import QUANTILES, TraceShape, describe

SEED, DRAWS = 2023, 24
SURROGATES = ("azure_code", "azure_conv")
TOYS = ("mooncake_conversation", "mooncake_synthetic", "specserve_code", "specserve_conv", "specserve_mooncake")
FIGURES = ("adaserve_fig8", "adaserve_fig10", "adaserve_fig11", "adaserve_fig14", "adaserve_fig15")
TOY_ROWS = 300
JITTER_GAP = 0.05
JITTER_RANK = 0.02
WINDOWS_PER_CELL = 7
WINDOW_S = 10


def draw_arrivals(real_s: Floats, rng: np.random.Generator) -> Floats:
    """Return arrivals (N,) with the real count in every second, at a resolution of 1 us, the first at 0."""
    second = real_s.astype(np.int64)
    starts = np.flatnonzero(np.diff(second, prepend=-1))
    offsets = np.split(real_s - second, starts[1:])
    spacings = [np.diff(part, prepend=0.0, append=1.0) for part in offsets]
    drawn = []
    for pattern, own in _patterns(second[starts], spacings, rng):
        inner = rng.permutation(pattern[1:-1]) if own else _turned(pattern[1:-1], rng)
        parts = np.concatenate([pattern[:1], inner, pattern[-1:]])
        parts = parts * np.exp(rng.normal(0, JITTER_GAP, len(parts)))
        drawn.append(np.minimum(np.cumsum(parts[:-1]) / parts.sum(), 0.999999))
    drawn[0] -= drawn[0][0]
    return np.asarray(np.round(second + np.concatenate(drawn), 6), np.float64)


def _patterns(second: Ints, spacings: list[Floats], rng: np.random.Generator) -> Iterator[tuple[Floats, bool]]:
    """Yield for every busy second the spacings of a similar one, and whether that is the second itself."""
    before = np.diff(second, prepend=-2) > 1
    after = np.diff(second, append=second[-1] + 2) > 1
    kinds = [(len(gaps), bool(b), bool(a)) for gaps, b, a in zip(spacings, before, after, strict=True)]
    alike: dict[tuple[int, bool, bool], list[int]] = {}
    same: dict[int, list[int]] = {}
    for i, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(i)
        same.setdefault(kind[0], []).append(i)
    for i, kind in enumerate(kinds):
        others = [j for j in alike[kind] if j != i] or [j for j in same[kind[0]] if j != i] or [i]
        chosen = others[rng.integers(len(others))]
        yield spacings[chosen], chosen == i


def _turned(gaps: Floats, rng: np.random.Generator) -> Floats:
    """Return the gaps rotated by a random number of places, and reversed half of the time; neighbours stay."""
    turned = np.roll(gaps, rng.integers(len(gaps))) if len(gaps) else gaps
    return turned[::-1] if rng.random() < 0.5 else turned


def load_cells(trace: Trace) -> Ints:
    """Return the cell (N,) of every row: windows close in time, of similar requests, prompts and outputs."""
    window = (trace.arrival_s / WINDOW_S).astype(np.int64)
    busy, where = np.unique(window, return_inverse=True)
    count = np.bincount(where)
    prompt, output = (np.bincount(where, weights=w) / count for w in (trace.prompt_tokens, trace.output_tokens))
    eras = max(1, round(len(busy) / (8 * WINDOWS_PER_CELL)))
    cell = np.zeros(len(busy), np.int64)
    for values, bins in ((busy, eras), (count, 2), (prompt, 2), (output, 2)):
        split = np.zeros(len(busy), np.int64)
        for one in np.unique(cell):
            mine = np.flatnonzero(cell == one)
            order = np.argsort(np.argsort(values[mine], kind="stable"), kind="stable")
            split[mine] = order * bins // len(mine)
        cell = cell * bins + split
    return np.asarray(cell[where], np.int64)


def redrawn(values: Ints, rng: np.random.Generator) -> Ints:
    """Return values (n,) of nearly the same ranks, from the smoothed quantile function of ``values``."""
    n = len(values)
    rank = np.argsort(np.lexsort((rng.random(n), values)))
    rank = np.argsort(np.argsort(rank + rng.normal(0, JITTER_RANK * n, n)))
    drawn = np.interp(rank + rng.uniform(-0.5, 0.5, n), np.arange(n), np.sort(values))
    return np.asarray(np.rint(drawn), np.int64)


def draw_lengths(trace: Trace, cells: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return prompt and output tokens (N,), drawn cell by cell."""
    prompt, output = trace.prompt_tokens.copy(), trace.output_tokens.copy()
    for cell in np.unique(cells):
        mine = np.flatnonzero(cells == cell)
        to = rng.permutation(mine)
        prompt[to], output[to] = (
            redrawn(trace.prompt_tokens[mine], rng),
            redrawn(trace.output_tokens[mine], rng),
        )
    return prompt, output


def surrogate_of(real: Trace) -> Trace:
    """Return the nearest of ``DRAWS`` surrogates of a real trace; no row equals a real one to the millisecond."""
    shape, cells = describe(real), load_cells(real)
    drawn = [_surrogate(real, cells, np.random.default_rng((SEED, draw))) for draw in range(DRAWS)]
    new = [surrogate for surrogate in drawn if not carried(real, surrogate, 0.001)]
    if not new:
        raise SpecsimError(f"{real.source.name}: every draw carries a row over; choose another SEED")
    return min(new, key=lambda surrogate: worst(shape, describe(surrogate)))


def _surrogate(real: Trace, cells: Ints, rng: np.random.Generator) -> Trace:
    arrival_rng, length_rng = rng.spawn(2)
    arrival_s = draw_arrivals(real.arrival_s, arrival_rng)
    prompt, output = draw_lengths(real, cells, length_rng)
    return Trace(arrival_s, prompt, output, real.row, TraceSource(real.source.name, "surrogate"))


def worst(real: TraceShape, surrogate: TraceShape) -> float:
    """Return the largest relative difference of a statistic, without rank correlations, which are near 0."""
    return max(abs(b / a - 1) for name, a, b in compared(real, surrogate) if "rank" not in name)


def carried(real: Trace, surrogate: Trace, width_s: float) -> int:
    """Return how many rows of the surrogate equal a real row in prompt, output and arrival to ``width_s``."""

    def rows(trace: Trace) -> list[tuple[int, int, int]]:
        tick = (trace.arrival_s / width_s).astype(np.int64)
        return list(zip(tick.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))

    known = set(rows(real))
    return sum(row in known for row in rows(surrogate))


def write_csv(file: Path, trace: Trace) -> None:
    """Write a trace as a user's file (docs/traces.md), gzip without a date, atomically."""
    names = ["arrival_s", "prompt_tokens", "output_tokens"]
    cells: list[list[str]] = [
        [f"{value:.6f}" for value in trace.arrival_s],
        [str(value) for value in trace.prompt_tokens],
        [str(value) for value in trace.output_tokens],
    ]
    if trace.slo_class is not None:
        names.append("slo_class")
        cells.append([trace.slo_names[code] for code in trace.slo_class])
    for name in ("tpot_slo_s", "tpot_slo_ratio"):
        column = getattr(trace, name)
        if column is not None:
            names.append(name)
            cells.append(["" if np.isnan(value) else f"{value:g}" for value in column])
    lines = [",".join(row) for row in zip(*cells, strict=True)]
    write(file, gzip.compress("\n".join([",".join(names), *lines, ""]).encode(), 9, mtime=0))


def write(file: Path, content: bytes) -> None:
    """Replace a file in one step."""
    with in_one_step(file) as partial:
        partial.write_bytes(content)


def entry(name: str, **changes: Any) -> dict[str, Any]:
    """Return the shipped YAML of a trace with some keys changed."""
    return {**read_yaml(shipped("conf") / "trace" / f"{name}.yaml"), "surrogate": False, **changes}


def compared(real: TraceShape, surrogate: TraceShape) -> Iterator[tuple[str, float, float]]:
    """Yield (statistic, real, surrogate), with each quantile as a statistic."""
    theirs: Mapping[str, Any] = asdict(surrogate)
    for name, value in asdict(real).items():
        if isinstance(value, tuple):
            for q, a, b in zip(QUANTILES, value, theirs[name], strict=True):
                yield f"{name} {q:.0%}", a, b
        else:
            yield name, value, theirs[name]


def table(pairs: dict[str, tuple[Trace, Trace]]) -> str:
    """Return the Markdown table of surrogates and real traces."""
    text = ["# Surrogate against real", "", "Written by `python tools/fit_surrogates.py --data DIR`; the nearest of"]
    text += [f"{DRAWS} draws. Bins start at the first arrival, dispersion = variance / mean,"]
    text += ["correlations are of ranks and compared by difference.", ""]
    for name, (real, surrogate) in pairs.items():
        text += [f"## {name}", "", "| statistic | real | surrogate | difference |", "|---|---|---|---|"]
        for label, a, b in compared(describe(real), describe(surrogate)):
            off = f"{b - a:+.3f}" if "rank" in label else f"{(b - a) / a:+.2%}"
            text.append(f"| {label} | {a:.6g} | {b:.6g} | {off} |")
        for width_s in (1.0, 0.001):
            count = carried(real, surrogate, width_s)
            text.append(f"| rows with a real (arrival to {width_s:g} s, prompt, output) | | {count} | |")
        text.append("")
    return "\n".join(text)


def main() -> int:
    """Write surrogates, toys, ``real_statistics.json`` and ``surrogates.md``."""
    parser = Parser(prog="python tools/fit_surrogates.py", description="Fit the shipped surrogates and cut the toys")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the real files, at any depth")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "traces", help="where to write")
    options = parser.parse_args()
    return run(lambda: _command(options.data, options.out))


def _command(data: Path, out: Path) -> int:
    os.environ["SPECSIM_DATA"] = str(data.resolve())
    pairs: dict[str, tuple[Trace, Trace]] = {}
    for name in SURROGATES:
        real = trace_recipe(entry(name)).trace(seed=0)
        pairs[name] = (real, surrogate_of(real))
        write_csv(out / f"{name}_surrogate.csv.gz", pairs[name][1])
    for name in TOYS:
        write_csv(out / f"{name}_toy.csv.gz", trace_recipe(entry(name)).trace(seed=0, requests=TOY_ROWS))
    for name in FIGURES:
        for point in [place["point"] for place in entry(name)["points"]]:
            toy = trace_recipe(entry(name, point=point)).trace(seed=0, requests=TOY_ROWS)
            write_csv(out / entry(name)["ships"].format(point=float(point)), toy)
    figures = {name: asdict(describe(real)) for name, (real, _) in pairs.items()}
    write(out / "real_statistics.json", (json.dumps(figures, indent=1) + "\n").encode())
    write(out / "surrogates.md", table(pairs).encode())
    say(f"written to {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
