"""`specsim tune`: each scheduler's best settings, and what they attain."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsim.commands.options import add_search_options, added, how, resumable, share
from specsim.errors import SpecsimError, say

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


def add_tune(commands: Any) -> None:
    """Add the command to those of `specsim`."""
    tune = added(commands, "tune", tune_command, "a scheduler's best settings for a traffic", HELP)
    add_search_options(tune, "95%", OUT)
    tune.add_argument("--schedulers", metavar="A,B", help="to tune and compare, as scheduler=A,B")
    tune.add_argument("--of", metavar="WHOM", help="worst class, all, a class or output_throughput (worst)")
    tune.add_argument("--trials", type=int, default=16, metavar="N", help="of each scheduler (16)")
    tune.add_argument("--export", metavar="ENGINE", help="write the settings of a server: vllm, sglang or trtllm")


def tune_command(arguments: argparse.Namespace) -> int:
    """Search, print the answer and write it into the folder."""
    from specsim.search.exports import check_engine
    from specsim.search.tune import Goal, check_trials, tune
    from specsim.search.tuned import export_lines, write_tuned

    point, schedulers, seeds = _read(arguments.settings, arguments.schedulers)
    of = arguments.of or ("output_throughput" if "concurrency" in point else "worst")
    target, engine = share("--target", arguments.target), check_engine(arguments.export)
    goal = Goal(of, target, check_trials(arguments.trials), seeds, engine)
    root = arguments.out
    with resumable(root):
        tuned = tune(point, schedulers, goal, root, **how(arguments))
    say(*str(tuned).splitlines())
    if tuned.export is not None:
        say("", *export_lines(tuned), "")
    for note in tuned.notes:
        say(f"note: {note}")
    say(*write_tuned(tuned, root))
    return 0


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
