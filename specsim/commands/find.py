"""`specsim find`: the highest rate at which a target attainment is kept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.options import add_search_options, added, how, resumable, share, told
from specsim.errors import SpecsimError, one_line, say

if TYPE_CHECKING:
    from specsim.config.configured import Configured
    from specsim.search.found import Found

FIND_HELP = """\
Settings are those of `specsim run`; several values of one make a line each: replicas=1,2,4
Rates double until two in a row miss the target, then the search closes in. Every line meets the same requests.
Without seed=, five seeds. Runs of a drawn trace are made longer until they can be judged, unless requests= says how
many requests they have. A search that was stopped goes on where it was. Another search in the same folder has
files of its own, find-2.csv and so on, and shares the runs. docs/find.md has an example.
"""
SEEDS = "seed=range(0,5)"
OUT = Path("results/find")


def add_find(commands: Any) -> None:
    """Add the command to those of `specsim`."""
    find = added(commands, "find", find_command, "the highest rate that keeps an attainment", FIND_HELP)
    add_search_options(find, "90%", OUT)
    find.add_argument("--of", default="worst", metavar="WHOM", help="worst class, all, a class or noted.NAME (worst)")
    find.add_argument("--rates", default="0.5..64", metavar="LOW..HIGH", help="to look in, in requests/s (0.5..64)")
    find.add_argument("--within", default="2%", metavar="SHARE", help="how close the answer's two rates lie (2%%)")
    find.add_argument("--longest", type=int, metavar="N", help="requests of a run that is made longer (10000)")


def find_command(arguments: argparse.Namespace) -> int:
    """Search, print a table, write it and a figure into the folder; return 1 if a run failed."""
    from specsim.commands.tables import find_table
    from specsim.config.configured import from_words
    from specsim.files.staging import in_one_step
    from specsim.metrics.capacity import LONGEST
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
    for note in found.notes():
        say(f"note: {note}")
    if name != FIRST:
        say(f"note: {root / FIRST}.csv holds another search; this one is {name}.csv")
    say(root / f"{name}.csv")
    say(*_drawn(found, root, name))
    for line in found.lines:
        for error in line.errors:
            told(f"specsim: {line.name} failed at {one_line(error)}")
    return 1 if found.sweep.failures else 0


def _words(settings: Sequence[str]) -> list[str]:
    """Return the settings, with seeds where they say none."""
    keys = {word.lstrip("+").partition("=")[0] for word in settings}
    for key, instead in (("rps", "--rates LOW..HIGH"), ("out", "--out DIR")):
        if key in keys:
            raise SpecsimError(f"{key}: find chooses it; expected {instead}")
    return [*settings, *([] if "seed" in keys else [SEEDS])]


def _rates(word: str) -> tuple[float, float]:
    """Return the lowest and the highest rate."""
    low, _, high = word.partition("..")
    try:
        rates = float(low), float(high)
    except ValueError:
        rates = 0.0, 0.0
    if not 0 < rates[0] < rates[1] < inf:
        raise SpecsimError(f"--rates {word}: expected LOW..HIGH in requests/s, such as 0.5..64")
    return rates


def _drawn(found: Found, root: Path, name: str) -> list[Path]:
    from specsim.figures.plots import save

    try:
        return save({name: found.figure()}, root)
    except SpecsimError as error:
        told(f"note: no figure: {error}")
        return []
