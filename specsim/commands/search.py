"""`specsim find` and `specsim tune`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.parser import add_search_options, added, how, resumable, share, told
from specsim.errors import SpecsimError, one_line, say

if TYPE_CHECKING:
    from specsim.config.configured import Configured


FIND_HELP = """\
Settings are those of `specsim run`; several values of one make a line each: replicas=1,2,4
Rates double until two in a row miss the target, then the search closes in. Every line meets the same requests.
Without seed=, five seeds. Runs of a drawn trace are made longer until they can be judged, unless requests= says how
many requests they have. A search that was stopped goes on where it was. Another search in the same folder has
files of its own, find-2.csv and so on, and shares the runs. docs/find.md has an example.
"""
SEEDS = "seed=range(0,5)"
FOUND, TUNED = Path("results/find"), Path("results/tune")


def add_find(commands: Any) -> None:
    """Add the command to those of `specsim`."""
    find = added(commands, "find", find_command, "the highest rate that keeps an attainment", FIND_HELP)
    add_search_options(find, "90%", FOUND)
    find.add_argument("--of", default="worst", metavar="WHOM", help="worst class, all, a class or noted.NAME (worst)")
    find.add_argument("--rates", default="0.5..64", metavar="LOW..HIGH", help="to look in, in requests/s (0.5..64)")
    find.add_argument("--within", default="2%", metavar="SHARE", help="how close the answer's two rates lie (2%%)")
    find.add_argument("--longest", type=int, metavar="N", help="requests of a run that is made longer (10000)")


def find_command(arguments: argparse.Namespace) -> int:
    """Search, print a table, write it and a figure into the folder; return 1 if a run failed."""
    from specsim.commands.tables import find_table
    from specsim.config.configured import from_words
    from specsim.figures.plots import save
    from specsim.files.staging import in_one_step
    from specsim.metrics.capacity import LONGEST
    from specsim.metrics.tables import untold
    from specsim.search.find import check_asked, search
    from specsim.search.found import FIRST, name_in

    target, within = share("--target", arguments.target), share("--within", arguments.within)
    longest = LONGEST if arguments.longest is None else arguments.longest
    asked = check_asked(target, _rates(arguments.rates), within, longest)
    words, root = _words(arguments.settings), arguments.out

    def at(rate: float) -> Sequence[Configured]:
        return from_words([*words, f"rps={rate!r}"], sweep=True)

    with resumable(root):
        found = search(asked, arguments.of, at, root, **how(arguments))
    name = name_in(root, found.identity, {"settings": words, "of": found.of, **asked._asdict()})
    with in_one_step(root / f"{name}.csv") as partial:
        found.table.to_csv(partial, index=False)
    say(*find_table(found))
    for note in untold(found.notes()):
        say(f"note: {note}")
    if name != FIRST:
        say(f"note: {root / FIRST}.csv holds another search; this one is {name}.csv")
    say(root / f"{name}.csv")
    say(*save({name: found.figure()}, root))
    for line in found.lines:
        for error in line.errors:
            told(f"specsim: {line.name} failed at {one_line(error)}")
    return 1 if found.sweep.failures else 0


def _words(settings: Sequence[str]) -> list[str]:
    """Return the settings, with seeds where they say none."""
    keys = _check_chosen("find", settings)
    return [*settings, *([] if "seed" in keys else [SEEDS])]


def _check_chosen(verb: str, settings: Sequence[str]) -> list[str]:
    """Return the keys of settings; refuse what the command gets in another way."""
    from specsim.config.synonyms import chosen_by

    keys = [word.lstrip("+").partition("=")[0] for word in settings]
    for key in keys:
        if instead := chosen_by(verb, key):
            raise SpecsimError(f"{key}: {instead}")
    return keys


def _rates(word: str) -> tuple[float, float]:
    """Return the lowest and the highest rate."""
    low, _, high = word.partition("..")
    try:
        rates = float(low), float(high)
    except ValueError:
        rates = 0.0, 0.0
    if not 0 < rates[0] < rates[1] < inf:
        raise SpecsimError(f"--rates {word}: expected LOW..HIGH in requests/s, as 0.5..64")
    return rates


HELP = """\
Settings are those of `specsim run`. The values to try of a scheduler stand in its file under tune:; several values of a
key, scheduler.num_speculative_tokens=1,2,3, are tried in its place, and one value is kept.
The first half of a recording tunes and the second judges; of a drawn trace other seeds judge. seed= are those that
judge (0 to 4). A search that was stopped goes on where it was. DIR holds tuned settings that any command takes:
scheduler=DIR/NAME.yaml. docs/tune.md has an example.
"""
Values = Mapping[str, Sequence[str]]


def add_tune(commands: Any) -> None:
    """Add the command to those of `specsim`."""
    tune = added(commands, "tune", tune_command, "a scheduler's best settings for a traffic", HELP)
    add_search_options(tune, "95%", TUNED)
    tune.add_argument("--schedulers", metavar="A,B", help="to tune and compare, as scheduler=A,B")
    tune.add_argument("--of", metavar="WHOM", help="worst class, all, a class or output_throughput (worst)")
    tune.add_argument("--trials", type=int, default=16, metavar="N", help="of each scheduler (16)")
    tune.add_argument("--export", metavar="ENGINE", help="write the settings of a server: vllm, sglang or trtllm")
    alone = "the settings alone: no other conditions, no highest rate"
    tune.add_argument("--no-sensitivity", dest="sensitivity", action="store_false", help=alone)


def tune_command(arguments: argparse.Namespace) -> int:
    """Search, print the answer and write it into the folder."""
    from specsim.search.exports import check_engine
    from specsim.search.tune import Goal, check_trials, tune
    from specsim.search.tuned import export_lines, write_tuned

    point, schedulers, seeds = _read(arguments.settings, arguments.schedulers)
    of = arguments.of or ("output_throughput" if "concurrency" in point else "worst")
    target, engine = share("--target", arguments.target), check_engine(arguments.export)
    goal = Goal(of, target, check_trials(arguments.trials), seeds, engine, arguments.sensitivity)
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
    from specsim.search.find import check_seeds

    listed = [] if schedulers is None else [f"scheduler={schedulers}"]
    _check_chosen("tune", words)
    given = axes_typed([*words, *listed], sweep=True)
    names = given.pop("scheduler", [chosen_by_default()["scheduler"]])
    seeds = check_seeds(given.pop("seed", []) or axes_typed([SEEDS], sweep=True)["seed"])
    tried = {key.partition(".")[2]: given.pop(key) for key in list(given) if key.startswith("scheduler.")}
    for key, values in given.items():
        if len(values) > 1:
            raise SpecsimError(f"{key}={','.join(values)}: expected one value, or several of scheduler.KEY")
    return {key: value for key, (value,) in given.items()}, dict.fromkeys(names, tried), seeds
