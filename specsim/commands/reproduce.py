"""`specsim reproduce`: published figures run again, theirs against ours in files, figures and one page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.lines import say

if TYPE_CHECKING:
    from specsim.published.comparison import Compared
    from specsim.published.experiment import Experiment

OUT = Path("results/published")
RUNS = "runs"
"""The folder below `--out` that keeps the runs."""
HELP = """\
Without NAME all experiments run that have not run yet, one after the other. Each takes up to seventeen minutes of one
core, all of them hours. `specsim reproduce --list` names them.
"""


def add_reproduce(commands: Any, jobs: Callable[[str], int], path: Callable[[str], Path]) -> None:
    """Add the command and its options to the parser."""
    reproduce = commands.add_parser("reproduce", help="published figures again: theirs against ours", epilog=HELP)
    reproduce.add_argument("names", nargs="*", metavar="NAME", help="experiments of conf/published, figures (all)")
    reproduce.add_argument("--list", action="store_true", help="run nothing: print the experiments and their figures")
    reproduce.add_argument("--quick", action="store_true", help="few points, one seed, short runs: no verdicts")
    reproduce.add_argument("--jobs", type=jobs, default=1, metavar="N", help="processes that run at once (1)")
    reproduce.add_argument("--redraw", action="store_true", help="run nothing: figures and page from the stored rows")
    reproduce.add_argument("--out", type=path, help="folder of the rows (results/published; quick: quick/)")
    reproduce.add_argument("--page", type=path, help="Markdown file to renew (reproduction.md in that folder)")
    reproduce.set_defaults(command=reproduce_command)


def reproduce_command(arguments: argparse.Namespace) -> int:
    """Run what is missing of the named experiments, write their rows, and renew every figure and the page."""
    from specsim.published.comparison import compared, write_rows
    from specsim.published.experiment import experiments
    from specsim.published.running import measured

    chosen = experiments(tuple(arguments.names))
    if arguments.list:
        say(*_listed(chosen))
        return 0
    out = arguments.out or (OUT / "quick" if arguments.quick else OUT)
    page = arguments.page or out / "reproduction.md"
    if arguments.quick and arguments.out is not None and not arguments.redraw:
        _check_quick(chosen, arguments.out)
    if not arguments.redraw:
        for place, each in enumerate(chosen, 1):
            _say(f"{each.name}: {place} of {len(chosen)} experiments")
            try:
                found = measured(each, out / RUNS / each.name, quick=arguments.quick, jobs=arguments.jobs, say=_say)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("the runs that ended are kept; the same command goes on") from None
            for figure in each.figures:
                say(write_rows(compared(each, figure, found, quick=arguments.quick), out))
    known = {each.file: each for each in (*experiments(), *chosen)}
    _publish(_stored(known.values(), out), out, page)
    return 0


def _listed(chosen: Iterable[Experiment]) -> Iterator[str]:
    """Yield each experiment, and below it its figures with their titles."""
    for each in chosen:
        yield f"{each.name}:"
        wide = max(len(figure.name) for figure in each.figures)
        yield from (f"  {figure.name:{wide}}  {figure.title}" for figure in each.figures)


def _check_quick(chosen: Iterable[Experiment], out: Path) -> None:
    """Refuse to write the short form's rows over those of the whole form, also where these no longer stand."""
    from specsim.published.comparison import file_of, is_quick

    for figure in (figure for each in chosen for figure in each.figures):
        path = file_of(out, figure)
        if path.is_file() and not is_quick(path):
            raise SpecsimError(f"--out {out}: holds {figure.name} in its whole form; --quick expects another folder")


def _stored(known: Iterable[Experiment], out: Path) -> Iterator[Compared]:
    """Yield the figures that have rows in `out`; print a note about rows that no longer stand."""
    from specsim.published.comparison import read_rows
    from specsim.runs.fingerprint import package_sha256

    older = []
    for each in known:
        for figure in each.figures:
            try:
                found = read_rows(each, figure, out)
            except SpecsimError as error:
                say(f"note: left out: {error}")
                continue
            if found is not None:
                older += [figure.name] if found.code != package_sha256() else []
                yield found
    if older:
        said = f"rows of {len(older)} figures, {older[0]} the first, were made by other code than this"
        say(f"note: {said}; `specsim reproduce` makes them anew")


def _publish(stored: Iterable[Compared], out: Path, page: Path) -> None:
    """Draw every figure, and write the page of all of them."""
    from specsim.figures.plots import plot_published
    from specsim.published import page as pages
    from specsim.published.comparison import means

    there = list(stored)
    if not there:
        raise SpecsimError(f"--out {out}: holds no figure's rows; expected `specsim reproduce` without --redraw first")
    for each in there:
        file = page.parent / pages.FIGURES / f"{each.figure.name}.png"
        axis = each.experiment.axis
        plot_published(
            means(each.figure, each.chosen),
            file,
            title=each.figure.title,
            x_label=axis.label,
            y_label=each.figure.label,
            names=None if axis.numeric else axis.names,
        )
        say(file)
    pages.write_page(pages.page(there, page.parent, out), page)
    say(page)


def _say(line: str) -> None:
    say(line, flush=True)
