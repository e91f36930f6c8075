"""`specsim sweep`: options and rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.options import added
from specsim.commands.run import run_sweep
from specsim.errors import SpecsimError, one_line, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from specsim.store.status import SweepStatus


def add_sweep_options(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add the options to a command's parser; `when` says beside what they have an effect."""
    parser.add_argument("--jobs", type=int, metavar="N", help=f"{when}processes that run at once (1)")
    parser.add_argument("--executor", metavar="NAME", help=f"{when}local, ray, dask or slurm (local)")
    parser.add_argument("--keep", metavar="WHAT", help=f"{when}runs: a folder each; summary: rows (runs)")
    parser.add_argument("--until", metavar="WIDTH", help=f'{when}seeds are added up to "2 points" (none)')
    parser.add_argument("--each", action="store_true", help=f"{when}a row for every seed, in place of means")


STATUS = "status"
MOST_ERRORS = 5
HELP = """\
A file has any of these sections; each value is a list, or a text as with -m:
  run:    {trace: poisson, requests: 200}          settings of every point
  grid:   {scheduler: [fcfs, adaserve], rps: "range(1,5)"}   every combination
  zip:    {profile: [A, B], replicas: [1, 2]}      values side by side
  random: {points: 20, seed: 0, draw: {rps: "interval(1,8)"}}
  seeds:  5                                        0 to 4, or a list
specsim sweep status DIR tells how far the sweep with out=DIR is. docs/sweep-folders.md has the rest.
"""


def add_sweep(commands: Any) -> None:
    """Add the command to the parser's others."""
    sweep = added(commands, "sweep", sweep_command, "a sweep from a YAML file; how far one is", HELP)
    sweep.add_argument("file", metavar="FILE.yaml | status", help="points, or the word status before a folder")
    sweep.add_argument("settings", nargs="*", metavar="KEY=VALUE | FOLDER", help="of every point, as out=DIR")
    add_sweep_options(sweep)
    sweep.add_argument("--debug", action="store_true", help="show the traceback of an error, your own lines in it")


def sweep_command(arguments: argparse.Namespace) -> int:
    """Run the points of a file, or tell how far a folder's sweep is; return 1 if a run failed."""
    from specsim.config.configured import from_file
    from specsim.runs.processes import composed

    if arguments.file == STATUS:
        _status(arguments.settings)
        return 0
    chosen = from_file(expanded(arguments.file), arguments.settings, counted=composed)
    return run_sweep(chosen, arguments)


def _status(words: Sequence[str]) -> None:
    from specsim.store.status import sweep_status

    if len(words) != 1:
        raise SpecsimError(f"{' '.join(('sweep status', *words))}: expected the folder of one sweep")
    root = expanded(words[0])
    if not root.is_dir():
        raise SpecsimError(f"sweep status: no folder {str(root)!r}")
    _say(root, sweep_status(root, time.time()))


def _say(root: Path, found: SweepStatus) -> None:
    of = "" if found.total is None else f" of {found.total}"
    left = "; an older version ran it: its points are not known" if found.total is None else f", {found.left} left"
    say(f"{root}: {found.done}{of} runs done, {found.failed} failed{left}")
    if found.left and found.made and found.spent_s > 0:
        from tqdm import tqdm

        per_s = found.made / found.spent_s
        say(f"{per_s:.3g} runs/s: {tqdm.format_interval(found.left / per_s)} left if it runs")
    if found.left and found.idle_s is not None:
        say(f"the last run was stored {found.idle_s:.0f} s ago")
    if found.worst is not None:
        name, attainment = found.worst
        say(f"worst class {name} {100 * attainment:.1f}%")
    for note in found.notes:
        say(one_line(f"note: {note}"))
    for name, error in list(found.errors.items())[:MOST_ERRORS]:
        say(one_line(f"failed: {name}: {error}"))
    if len(found.errors) > MOST_ERRORS:
        say(f"failed: {len(found.errors) - MOST_ERRORS} more")
