"""`specsim reproduce`: published figures run again, theirs against ours in files, figures and one page."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from specsim.published.comparison import Compared
    from specsim.published.experiment import Experiment

OUT = Path("results/published")
RUNS = "runs"
"""The folder below `--out` that keeps the runs."""


def reproduce_command(arguments: argparse.Namespace) -> int:
    """Run what is missing of the named experiments, write their rows, and renew every figure and the page."""
    from specsim.published.comparison import compared, write_rows
    from specsim.published.experiment import experiments
    from specsim.published.running import measured

    chosen = experiments(tuple(arguments.names))
    out = arguments.out or (OUT / "quick" if arguments.quick else OUT)
    page = arguments.page or out / "reproduction.md"
    if arguments.quick and arguments.out is not None and not arguments.redraw:
        _check_quick(chosen, arguments.out)
    if not arguments.redraw:
        for each in chosen:
            try:
                found = measured(each, out / RUNS / each.name, quick=arguments.quick, jobs=arguments.jobs, say=_say)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("the runs that ended are kept; the same command goes on") from None
            for figure in each.figures:
                print(write_rows(compared(each, figure, found, quick=arguments.quick), out))
    known = {each.file: each for each in (*experiments(), *chosen)}
    _publish(_stored(known.values(), out), out, page)
    return 0


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
                print(f"note: left out: {error}")
                continue
            if found is not None:
                older += [figure.name] if found.code != package_sha256() else []
                yield found
    if older:
        said = f"rows of {len(older)} figures, {older[0]} the first, were made by other code than this"
        print(f"note: {said}; `specsim reproduce` makes them anew")


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
        print(file)
    pages.write_page(pages.page(there, page.parent, out), page)
    print(page)


def _say(line: str) -> None:
    print(line, flush=True)
