"""`specsim compare`: two runs, two sweeps, or a run and a benchmark."""

from __future__ import annotations

import argparse
from math import isfinite
from typing import Any

from specsim.commands.parser import added
from specsim.errors import say
from specsim.files.checked_mapping import expanded

COMPARE_HELP = """\
A, B: folders of runs, folders of sweeps, or results of `vllm bench serve` (and the like). Differences are B - A. They
have 95% intervals where the requests are the same: by request between runs, by seed between sweeps
of five seeds or more.
"""


def add_compare(commands: Any) -> None:
    """Add the command to those of `specsim`."""
    parser = added(commands, "compare", compare_command, "two runs, two sweeps, or a run and a benchmark", COMPARE_HELP)
    for side in ("A", "B"):
        parser.add_argument(side, type=expanded, help="a run, a sweep or a benchmark's result")


def compare_command(arguments: argparse.Namespace) -> int:
    """Print the settings and the numbers of both sides, and their differences."""
    from specsim.commands.tables import interval
    from specsim.metrics.tables import WIDTH, aligned, header, in_digits
    from specsim.store.comparing import CLOSE, compared

    found = compared(arguments.A, arguments.B)
    say(f"A: {arguments.A}{found.picked[0]}", f"B: {arguments.B}{found.picked[1]}")
    differ = [f"{key}: {_word(one)} | {_word(other)}" for key, one, other in found.settings]
    same = f"nothing that both tell differs by more than {100 * CLOSE:g}%" if found.unknown else "no setting differs"
    say(*(differ or [same]), *([f"not compared: {', '.join(found.unknown)}"] if found.unknown else []))
    rows = [(*found.keys, "", "A", "B", "B - A", "% of A")]
    for point, label, one, other, apart, half in found.rows:
        told = interval(apart, half, "+") if isfinite(half) else in_digits(apart, "+")
        share = f"{100 * apart / one:+.1f}" if one and not label.endswith("%") else ""
        rows.append((*point, label, in_digits(one), in_digits(other), told, share))
    head, *lines = aligned(rows, left=len(found.keys) + 1)
    say(*header(found.stand_ins, WIDTH), head, "-" * max(map(len, (head, *lines))), *lines, found.said)
    say(*(f"note: {each}" for each in found.notes))
    return 0


def _word(value: Any) -> str:
    missing = value is None or value != value
    return "none" if missing else f"{value:g}" if isinstance(value, float) else str(value)
