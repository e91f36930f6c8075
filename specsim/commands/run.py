"""`specsim run` and `specsim sweep`: one run or a sweep, and its output on the terminal."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.parser import added, asked_for, told
from specsim.errors import SpecsimError, one_line, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from specsim.config.configured import Configured
    from specsim.config.groups import Choices
    from specsim.store.status import SweepStatus
    from specsim.store.summaries import Failure


OF_SWEEPS = ("jobs", "executor", "keep", "until", "each")
"""Options of a sweep alone."""


def run_command(arguments: argparse.Namespace) -> int:
    """Run what the settings name, and return the exit code: 1 if a run of a sweep failed."""
    from specsim.config.configured import against, from_words
    from specsim.metrics.tables import class_table, untold
    from specsim.metrics.why import why_said
    from specsim.runs import plan
    from specsim.runs.execute import execute
    from specsim.runs.processes import composed
    from specsim.store.runs import check_place

    if arguments.against is not None and (arguments.multirun or arguments.cfg is not None):
        flag = "-m" if arguments.multirun else "--cfg"
        raise SpecsimError(f"--against {arguments.against}: compares with one run; expected it without {flag}")
    swept = {} if arguments.multirun else asked_for(arguments, OF_SWEEPS)
    if swept:
        raise SpecsimError(f"--{', --'.join(swept)}: this is one run; expected -m beside it, for a sweep")
    chosen = from_words(arguments.settings, sweep=arguments.multirun, counted=composed if arguments.multirun else iter)
    if arguments.cfg is not None:
        return _show(arguments, chosen)
    if arguments.multirun:
        return run_sweep(chosen, arguments)
    named = [] if arguments.against is None else against(chosen[0], arguments.against)
    ready, *beside = plan.checked([*chosen, *named])
    with _folder(ready.settings.out, ready.chosen) as folder:
        check_place(folder, ready)
        run = execute(ready.prepared(), folder, progress=True)
    others = {each.chosen.scheduler.name: execute(each.prepared(), None, progress=True) for each in beside}
    own = [f"{name}: {note}" for name, each in others.items() for note in each.notes if note not in run.notes]
    for note in untold((*run.notes, *own)):
        say(f"note: {note}")
    say(*class_table(run.metrics, {name: each.metrics for name, each in others.items()}).split("\n"))
    say(*why_said(run), folder)
    return 0


def run_sweep(chosen: Sequence[Configured], arguments: argparse.Namespace) -> int:
    """Run a sweep with the options of `add_sweep_options` and print its table; return 1 if a run failed."""
    from specsim.commands.tables import sweep_lines
    from specsim.metrics.tables import untold
    from specsim.runs import plan
    from specsim.runs.sweep import check_until, run_points, write_table

    keep, until = plan.check_keep(arguments.keep or plan.KEEP[0]), arguments.until
    check_until(until)
    workers: dict[str, Any] = {"progress": True, **asked_for(arguments, ("jobs", "executor"))}
    ready = plan.checked(chosen, **workers)
    with _folder(ready[0].settings.out, None) as root:
        planned, runs = run_points(ready, root, until, keep=keep, say=told, **workers)
    stored = write_table(root)
    # Where the folder holds no other runs, and no copy in the place of one, their table was made for it already.
    told_of = stored if len(stored) == len(runs) and {*runs.names} <= {*stored.names} else runs
    for line in dict.fromkeys(untold((*told_of.notes, *runs.whole_notes, *stored.whole_notes))):
        say(f"note: {line}")
    say(*sweep_lines(planned, runs, told_of, each=arguments.each), *told_of.seeds_said(), root)
    return _say_failures(runs.failures, debug=arguments.debug)


def _say_failures(failures: Sequence[Failure], *, debug: bool) -> int:
    for each in failures:
        if debug:
            say(*each.traceback.splitlines(), error=True)
        label = ",".join(f"{key}={value}" for key, value in each.label.items())
        say(one_line(f"specsim: {label or 'the run'} failed: {each.error}"), error=True)
    return 1 if failures else 0


def _show(arguments: argparse.Namespace, chosen: Sequence[Configured]) -> int:
    """Print the config.yaml that each point's run would have."""
    from specsim.config.configured import labels_of
    from specsim.config.schema import commented
    from specsim.files.yaml_file import config_text

    if arguments.cfg != "job":
        raise SpecsimError(f"--cfg {arguments.cfg}: Hydra runs nothing here; expected --cfg job")
    for each, label in zip(chosen, labels_of([each.point for each in chosen]), strict=True):
        if arguments.multirun:
            say("---", *(f"# {key}={value}" for key, value in label.items()))
        say(*commented(config_text(each.stored).splitlines()))
    return 0


@contextmanager
def _folder(out: str | None, chosen: Choices | None) -> Iterator[Path]:
    """Yield the folder to write to: `out`, or a new one in results/runs, which is removed if it stays empty.

    A new folder is named by the time and by what was `chosen` for a run, None for a sweep.
    """
    from specsim.store.runs import new_folder

    if out is not None:
        yield Path(out)
        return
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = "sweep" if chosen is None else f"{chosen.scheduler.title}-{chosen.trace.title}"
    folder = new_folder(Path("results") / "runs" / f"{stamp}-{name}")
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


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
    from specsim.metrics.tables import percent

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
        say(f"worst class {name} {percent(attainment)}")
    for note in found.notes:
        say(one_line(f"note: {note}"))
    for name, error in list(found.errors.items())[:MOST_ERRORS]:
        say(one_line(f"failed: {name}: {error}"))
    if len(found.errors) > MOST_ERRORS:
        say(f"failed: {len(found.errors) - MOST_ERRORS} more")
