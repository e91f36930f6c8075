"""Print how far composed passes are from whole engines: ``python -m tools.fidelity --data DIR``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from specsim.errors import SpecsimError
from specsim.latency.profile import load_profile
from tools.fidelity.points import Point, Served, points
from tools.public.tables import table

SERVED = (
    ("llama8b_1b_h100", "meta-llama/Llama-3.1-8B-Instruct", None),
    ("qwen3_32b_06b_2xh100", "Qwen/Qwen3-32B", None),
    ("llama70b_fp8_1b_4xh100", "meta-llama/Llama-3.1-70B", "fp8"),
)
HEAD = (
    "profile",
    "engine",
    "host time",
    "points",
    "TPOT error, mean, %",
    "median of its size",
    "p90",
    "TTFT, mean",
    "median of its size",
)
EACH = ("engine", "isl", "osl", "clients", "TPOT measured, ms", "simulated", "error, %", "TTFT measured", "simulated")


def served_by(profile: str, model: str, precision: str | None) -> Served:
    """Return the target of a profile, by name or path."""
    loaded = load_profile(profile)
    return Served(model, loaded.gpus, precision, loaded.target, loaded.memory_bytes)


def summary(name: str, host: str, of: Iterable[Point]) -> Iterator[list[str]]:
    """Yield a row of text per engine."""
    for engine, group in groupby(sorted(of), key=lambda point: point.engine):
        some = list(group)
        tpot = 100 * np.array([point.tpot_error for point in some])
        ttft = 100 * np.array([point.ttft_error for point in some])
        sizes = (np.median(abs(tpot)), np.quantile(abs(tpot), 0.9))
        yield [
            f"`{name}`",
            engine,
            host,
            f"{len(some)}",
            f"{tpot.mean():+.1f}",
            *(f"{each:.1f}" for each in sizes),
            f"{ttft.mean():+.0f}",
            f"{np.median(abs(ttft)):.0f}",
        ]


def each_point(of: Iterable[Point]) -> Iterator[list[str]]:
    """Yield a row of text per point, the worst first."""
    for point in sorted(of, key=lambda point: -abs(point.tpot_error)):
        times = (point.tpot_s, point.simulated_tpot_s)
        first = (point.ttft_s, point.simulated_ttft_s)
        yield [
            point.engine,
            *(f"{each}" for each in point.load),
            *(f"{1000 * each:.2f}" for each in times),
            f"{100 * point.tpot_error:+.1f}",
            *(f"{1000 * each:.0f}" for each in first),
        ]


def report(data: Path, each: bool) -> Iterator[str]:
    """Yield the tables as Markdown: errors by profile and engine, then, if asked for, every point."""
    rows: list[Sequence[str]] = []
    every: list[tuple[str, list[Point]]] = []
    for profile, model, precision in SERVED:
        served = served_by(profile, model, precision)
        alone = replace(served, target=replace(served.target, overhead_s=0.0))
        every.append((profile, list(points(data, served))))
        rows += summary(profile, f"{1000 * served.target.overhead_s:.1f} ms", every[-1][1])
        rows += summary(profile, "none", points(data, alone))
    yield table(HEAD, rows)
    for profile, of in every if each else ():
        yield f"\n{profile}\n\n{table(EACH, each_point(of))}"


def main(arguments: list[str] | None = None) -> int:
    """Write the tables to standard output."""
    parser = argparse.ArgumentParser(prog="python -m tools.fidelity", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds perf/serving_points")
    parser.add_argument("--each", action="store_true", help="every point too, the worst first")
    options = parser.parse_args(arguments)
    try:
        for text in report(options.data, options.each):
            sys.stdout.write(text)
    except SpecsimError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
