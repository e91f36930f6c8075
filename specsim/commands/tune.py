"""`specsim tune`: each scheduler's best settings, and what they attain."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.find import share
from specsim.commands.sweep import executor
from specsim.errors import SpecsimError, say

if TYPE_CHECKING:
    from specsim.metrics.tuned import Tuned

HELP = """\
Settings are those of `specsim run`. What is tried of a scheduler stands in its file under tune:; several values of a
key, scheduler.num_speculative_tokens=1,2,3, are tried in its place, and one value is kept.
The first half of a recording tunes and the second judges; of a drawn trace other seeds judge. seed= are those that
judge (0 to 4). A search that was stopped goes on where it was. DIR holds tuned settings that any command takes:
scheduler=DIR/NAME.yaml. docs/tune.md has an example.
"""
Values = Mapping[str, Sequence[str]]
OUT = Path("results/tune")
SEEDS = "range(0,5)"


def add_tune(commands: Any, jobs: Callable[[str], int], path: Callable[[str], Path]) -> None:
    """Add the command to those of `specsim`; `jobs` and `path` read such words."""
    tune: argparse.ArgumentParser = commands.add_parser(
        "tune",
        help="a scheduler's best settings for a traffic",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tune.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    tune.add_argument("--schedulers", metavar="A,B", help="to tune and compare, as scheduler=A,B")
    tune.add_argument("--target", default="95%", metavar="SHARE", help="of requests that meet their objectives (95%%)")
    tune.add_argument("--of", metavar="WHOM", help="worst class, all, a class or a number of a run (worst)")
    tune.add_argument("--trials", type=int, default=16, metavar="N", help="of each scheduler (16)")
    tune.add_argument("--export", metavar="ENGINE", help="write the settings of a server: vllm, sglang or trtllm")
    tune.add_argument("--jobs", type=jobs, default=1, metavar="N", help="processes that run at once (1)")
    tune.add_argument("--executor", type=executor, default="local", metavar="NAME", help="local, ray, dask or slurm")
    tune.add_argument("--out", type=path, default=OUT, metavar="DIR", help="of runs, tables, settings (results/tune)")
    tune.set_defaults(command=tune_command)


def tune_command(arguments: argparse.Namespace) -> int:
    """Search, print the answer and write it into the folder."""
    from specsim.runs.exports import check_engine
    from specsim.runs.tune import Goal, check_trials, tune
    from specsim.runs.tuned_files import write_tuned

    point, schedulers, seeds = _read(arguments.settings, arguments.schedulers)
    of = arguments.of or ("output_throughput" if "concurrency" in point else "worst")
    target, engine = share("--target", arguments.target), check_engine(arguments.export)
    goal = Goal(of, target, check_trials(arguments.trials), seeds, engine)
    root, jobs, on = arguments.out, arguments.jobs, arguments.executor
    try:
        tuned = tune(point, schedulers, goal, root, jobs=jobs, executor=on, say=_say, progress=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the runs that ended are kept; the same command with --out {root} goes on") from None
    say(*answer(tuned))
    if tuned.export is not None:
        say("", *tuned.export.text.splitlines(), "")
    for note in tuned.notes:
        say(f"note: {note}")
    say(*write_tuned(tuned, root))
    return 0


def _say(line: str) -> None:
    say(line, error=True, flush=True)


def _read(words: Sequence[str], schedulers: str | None) -> tuple[dict[str, str], Mapping[str, Values], list[int]]:
    """Return the settings that all runs share, by scheduler the values to try of its keys, and the seeds that judge."""
    from specsim.config.groups import chosen_by_default
    from specsim.config.points import axes_typed

    listed = [] if schedulers is None else [f"scheduler={schedulers}"]
    given = axes_typed([*words, *listed], sweep=True)
    if "out" in given:
        raise SpecsimError("out: tune chooses it; expected --out DIR")
    names = given.pop("scheduler", [chosen_by_default()["scheduler"]])
    seeds = [int(each) for each in given.pop("seed", None) or axes_typed([f"seed={SEEDS}"], sweep=True)["seed"]]
    tried = {key.partition(".")[2]: given.pop(key) for key in list(given) if key.startswith("scheduler.")}
    for key, values in given.items():
        if len(values) > 1:
            raise SpecsimError(f"{key}={','.join(values)}: expected one value, or several of scheduler.KEY")
    return {key: value for key, (value,) in given.items()}, dict.fromkeys(names, tried), seeds


def answer(tuned: Tuned) -> Iterator[str]:
    """Yield the answer: a sentence, the configurations, other conditions, and what follows."""
    from specsim.metrics.tables import aligned

    yield from _sentence(tuned)
    yield ""
    names = list(tuned.judgements["as given"][0].classes)
    rows = [["configuration", tuned.of, "lead of the best", *names]]
    for place, each in enumerate(tuned.candidates):
        classes = [f"{100 * tuned.judgements['as given'][place].classes[name].mean():.1f}" for name in names]
        lead = "" if place == 0 else _of(tuned, *tuned.lead(place), "+")
        rows.append([each.name, _of(tuned, *tuned.measured(place)), lead, *classes])
    yield from aligned(rows, left=1)
    yield ""
    rows = [["if", tuned.of, f"lead over {_second(tuned)}", "lead over no drafts"]]
    for said, of in tuned.judgements.items():
        leads = [_of(tuned, *tuned.lead(at, said), "+") if at and at in of else "" for at in (1, tuned.plain)]
        rows.append([said, _of(tuned, *tuned.measured(0, said)), *leads])
    yield from aligned(rows, left=1)
    yield ""
    yield from _follows(tuned)


def _second(tuned: Tuned) -> str:
    return tuned.candidates[1].scheduler if len(tuned.candidates) > 1 else "the second"


def _of(tuned: Tuned, mean: float, half_width: float, sign: str = "") -> str:
    """Return a measure with half its interval, in per cent where it is a share."""
    if not isfinite(mean):
        return ""
    times, decimals = (100, 1) if tuned.is_share else (1, 4)
    shown = f"{times * mean:{sign}.{decimals}{'f' if tuned.is_share else 'g'}}"
    return f"{shown} \u00b1 {times * half_width:.2g}" if isfinite(half_width) else shown


def _sentence(tuned: Tuned) -> Iterator[str]:
    mean, half = tuned.measured(0)
    unit = f"% of {tuned.whose}" if tuned.is_share else f" {tuned.of}"
    attains = "attain their objectives" if tuned.is_share else "is its measure"
    load = "with these clients" if tuned.rate is None else f"at {tuned.rate:g} requests/s"
    yield f"Best: {tuned.best.name}. {load[0].upper()}{load[1:]} {_of(tuned, mean, half)}{unit} {attains}"
    for place in dict.fromkeys((1, tuned.plain)):
        if place == 0 or place >= len(tuned.candidates):
            continue
        lead, known = tuned.lead(place)
        said = f"{_of(tuned, lead, known, '+')}{' points' if tuned.is_share else ''}"
        sure = "" if tuned.decided(place) else ": level, within the interval"
        yield f"  {said} against {tuned.candidates[place].name}{sure}"


def _follows(tuned: Tuned) -> Iterator[str]:
    """Yield the highest rate, the servers for the rate, and when not to speculate."""
    if tuned.found is not None:
        for line, place in zip(tuned.found.lines, tuned.searched, strict=True):
            each = tuned.found.capacity(line)
            rate = (
                f"{each.mean:.3g} \u00b1 {each.half_width:.2g}"
                if isfinite(each.half_width)
                else f"{each.keeps or 0:.3g}"
            )
            below = f"below {tuned.found.asked.first:g}" if each.keeps is None else rate
            yield f"highest rate that keeps {100 * tuned.target:g}%: {below} requests/s, {tuned.candidates[place].name}"
        if tuned.replicas is None:
            yield f"no number of servers was found that keeps {100 * tuned.target:g}% at {tuned.rate:g} requests/s"
        else:
            count = tuned.replicas * tuned.gpus
            yield f"GPUs for {tuned.rate:g} requests/s: {count} ({tuned.replicas} x {tuned.gpus})"
    yield from _no_drafts(tuned)


def _no_drafts(tuned: Tuned) -> Iterator[str]:
    if tuned.plain == 0:
        yield "do not speculate: plain decoding does best"
        return
    said = list(tuned.drafts_cost())
    since = tuned.no_drafts_from()
    when = [*said, *([] if since is None else [f"from {since:g} requests/s on"])]
    if not tuned.decided(tuned.plain):
        yield "do not speculate for the sake of this measure: no gain shows beyond the noise"
    yield f"do not speculate: {'; '.join(when)}" if when else "drafts pay under all of these conditions"
