"""Published figures run again, theirs against ours in files, figures and one page: `python -m studies.reproduction`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from profiler.text import write
from specsim.commands.parser import Parser, run
from specsim.errors import SpecsimError, say
from specsim.figures.plots import save
from specsim.files.checked_mapping import expanded
from specsim.runs import provenance
from specsim.runs.processes import check_jobs
from studies.reproduction.comparison import ComparedFigure, compared, file_of, is_quick, read_rows, write_rows
from studies.reproduction.experiment import PaperExperiment, experiments
from studies.reproduction.page import FIGURES, page
from studies.reproduction.plot import drawn
from studies.reproduction.running import measured

OUT = Path("results/published")
RUNS = "runs"
"""The folder below `--out` that keeps the runs."""
EPILOG = """\
Without NAME all experiments run that have not run yet, one after the other. Each takes up to seventeen minutes of one
core, all of them hours.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing of the named experiments, write their rows, and renew every figure and the page."""
    return run(lambda: _command(sys.argv[1:] if argv is None else argv))


def _parser() -> Parser:
    parser = Parser(prog="python -m studies.reproduction", description=__doc__, epilog=EPILOG)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments, or figures of them (all)")
    parser.add_argument("--list", action="store_true", help="run nothing: print the experiments and their figures")
    parser.add_argument("--quick", action="store_true", help="few points, one seed, short runs: no verdicts")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that run at once (1)")
    parser.add_argument("--redraw", action="store_true", help="run nothing: figures and page from the stored rows")
    parser.add_argument("--out", type=expanded, help="folder of the rows (results/published; quick: quick/)")
    parser.add_argument("--page", type=expanded, help="Markdown file to renew (reproduction.md in that folder)")
    return parser


def _command(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    chosen = experiments(tuple(arguments.names))
    if arguments.list:
        say(*_listed(chosen))
        return 0
    check_jobs(arguments.jobs)
    out = arguments.out or (OUT / "quick" if arguments.quick else OUT)
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
    _publish(list(_stored(known.values(), out)), out, arguments.page or out / "reproduction.md")
    return 0


def _listed(chosen: Iterable[PaperExperiment]) -> Iterator[str]:
    """Yield each experiment, and below it its figures with their titles."""
    for each in chosen:
        yield f"{each.name}:"
        wide = max(len(figure.name) for figure in each.figures)
        yield from (f"  {figure.name:{wide}}  {figure.title}" for figure in each.figures)


def _check_quick(chosen: Iterable[PaperExperiment], out: Path) -> None:
    """Refuse to write the short form's rows over those of the whole form, also where these no longer stand."""
    for figure in (figure for each in chosen for figure in each.figures):
        path = file_of(out, figure)
        if path.is_file() and not is_quick(path):
            raise SpecsimError(f"--out {out}: holds {figure.name} in its whole form; --quick expects another folder")


def _stored(known: Iterable[PaperExperiment], out: Path) -> Iterator[ComparedFigure]:
    """Yield the figures that have rows in `out`; print a note about rows that no longer stand."""
    older = []
    for each in known:
        for figure in each.figures:
            try:
                found = read_rows(each, figure, out)
            except SpecsimError as error:
                say(f"note: left out: {error}")
                continue
            if found is not None:
                older += [figure.name] if found.code != provenance.package_sha256() else []
                yield found
    if older:
        said = f"rows of {len(older)} figures, {older[0]} the first, were made by other code than this"
        say(f"note: {said}; `make reproduce` makes them anew")


def _publish(there: Sequence[ComparedFigure], out: Path, file: Path) -> None:
    """Draw every figure, and write the page of all of them."""
    if not there:
        raise SpecsimError(f"--out {out}: holds no figure's rows; expected a run without --redraw first")
    for each in there:
        say(*save({each.figure.name: drawn(each)}, file.parent / FIGURES, ("png",)))
    write(file, page(there, file.parent, out))
    say(file)


def _say(line: str) -> None:
    say(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
