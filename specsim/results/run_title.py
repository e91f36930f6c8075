"""A run in one line: what it ran, and how many of its requests met their objectives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsim.lines import printable

SHOWN = ("scheduler", "trace", "profile", "slo")


def run_title(config: Mapping[str, Any]) -> str:
    """Return the choices of a run, and its load and seed."""
    chosen = [f"{key}={Path(config['choices'][key]).name}" for key in SHOWN]
    set_to = [f"{key}={config[key]}" for key in ("rps", "requests", "seed") if config[key] is not None]
    return f"Run: {', '.join([*chosen, *set_to])}"


def run_line(config: Mapping[str, Any], metrics: Mapping[str, Any], folder: Path | None) -> str:
    """Return what a run looks like in Python."""
    block = metrics["specsim"]
    attained = f"{block['arrived']:,} requests, {block['slo_attainment']:.1%} attained"
    where = "in memory" if folder is None else f"in {folder}"
    return printable(f"<{run_title(config)}; {attained}; {where}>")
