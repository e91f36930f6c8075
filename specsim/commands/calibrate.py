"""`specsim calibrate` and `specsim import`: what benchmarks and servers wrote -> an engine, traces, an acceptance."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.parser import added
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from specsim.calibration.fit import Fit, Group
    from specsim.calibration.reading import Held, MeasuredPoint
    from specsim.config.groups import Choices
    from specsim.latency.engine import Engine
    from specsim.workload.entry import How


def profiler_command(arguments: argparse.Namespace) -> int:
    """Hand over the words behind the command to the profiler, found by name and late: it may load torch."""
    command, *words = arguments.words
    found = find_spec("profiler")
    if found is None:
        raise SpecsimError(f"specsim {command}: the package profiler is missing; expected it beside specsim")
    if not found.submodule_search_locations or find_spec("profiler.cli") is None:
        where = found.origin or ", ".join(found.submodule_search_locations or ())
        raise SpecsimError(f"{where}: stands in the way of specsim's own package profiler; expected another name")
    cli = import_module("profiler.cli")
    code: int = {"profile": cli.main, "fidelity": cli.fidelity}[command](words)
    return code


LEAST_POINTS = 15
UNFIT = 4
"""The exit code of a calibration that is not fit for use; the file is written and marked."""
MOST_HOST_SHARE = 0.5
HEAD = (
    "held-out error, %",
    "points",
    *(cell for name in ("TPOT", "E2E", "TTFT") for cell in (f"{name} median", "p90", "mean")),
)


def calibrate_command(arguments: argparse.Namespace) -> int:
    """Fit an engine to points, write it and its figure, and print its errors on points that were not fitted."""
    from specsim.calibration.fit import engine_keys, groups, misfit, source
    from specsim.calibration.reading import counted, read_points
    from specsim.files.staging import in_one_step
    from specsim.files.yaml_file import yaml_text
    from specsim.latency.profile import peak_notes
    from specsim.metrics.tables import aligned
    from specsim.runs.processes import told as counting

    out, figure = _places(arguments.out, force=arguments.force)
    fit, chosen = _fit(arguments)
    measured = read_points(arguments.points, fit.server.profile.gpus)
    points = [each for each in measured.points if fit.server.fits(each.load, fit.base)]
    _check(points, len(measured.points))
    with closing(counting(repeat(None), None, "simulated", progress=True, unit="load")) as loads:
        fit = replace(fit, server=replace(fit.server, on_load=lambda: next(loads, None)))
        engine, held = fit.engine(points), fit.held_out(points)
    table = groups(held)
    names = Path(chosen.engine.name).name, Path(chosen.drafter.name).name
    told = source(fit, *names, arguments.points, measured.sha256, points, table[0])
    description = f"Calibrated on {counted(points)} of {arguments.points[0].name}"
    keys = engine_keys(chosen.engine.values, engine, description, told, wrong := misfit(table[0]))
    _draw(held, figure)
    with in_one_step(out) as partial:
        partial.write_text(yaml_text(keys, sort_keys=False), encoding="utf-8")
    peaks = peak_notes(fit.server.profile, str(chosen.profile))
    plain = [each for each in points if not each.load.drafts]
    host_share = fit.host_share(plain, engine) if plain else 0.0
    notes = _notes(engine, host_share, table[0], len(measured.points), wrong)
    for note in [*measured.notes, *peaks, *notes]:
        say(f"note: {note}")
    changed = ["overhead_s", "request_s", *(("pipeline_steps", "frontend_s") if fit.whole else ())]
    changed += ["draft_launch_s", "speculation_s"] if len(plain) < len(points) else []
    say(f"{chosen.engine} with {', '.join(f'{key} {getattr(engine, key) or 0.0:.4g}' for key in changed)}")
    say(*aligned([HEAD, *(_row(each) for each in table)], left=1))
    say(*([] if fit.whole else ["TTFT was not fitted: --all fits pipeline_steps and frontend_s to it"]))
    say(out, figure)
    return 0 if wrong is None else UNFIT


def _places(out: Path, *, force: bool) -> tuple[Path, Path]:
    """Return where to write the engine and its figure."""
    if out.suffix not in (".yaml", ".yml"):
        raise SpecsimError(f"--out {out}: expected a file whose name ends with .yaml, as engine=./mine.yaml")
    figure = out.with_suffix(".png")
    for file in (out, figure):
        if file.is_dir():
            raise SpecsimError(f"--out {out}: {file} is a folder; expected a file")
        if file.exists() and not force:
            raise SpecsimError(f"--out {out}: {file} is there; expected another name, or --force to replace it")
    if not out.parent.is_dir():
        raise SpecsimError(f"--out {out}: no such folder {out.parent}")
    return out, figure


def _fit(arguments: argparse.Namespace) -> tuple[Fit, Choices]:
    """Return what is to be fitted, and the choices of a run with this profile and the engine to begin with."""
    from specsim.calibration.fit import Fit
    from specsim.calibration.reading import MeasuredServer
    from specsim.config.configured import from_words
    from specsim.latency.drafter import drafter_from_mapping
    from specsim.latency.engine import engine_from_mapping
    from specsim.latency.profile import profile_from_mapping

    if arguments.token_budget < 1:
        raise SpecsimError(f"--token-budget {arguments.token_budget}: expected a whole number of at least 1")
    beside = {"engine": arguments.engine, "drafter": arguments.drafter}
    words = [f"profile={arguments.profile}", *(f"{key}={value}" for key, value in beside.items() if value)]
    chosen = from_words(words, sweep=False)[0].chosen
    profile = profile_from_mapping(chosen.profile.values, str(chosen.profile))
    if said := profile.unfit:
        raise SpecsimError(f"{chosen.profile}: {said}; expected another profile")
    engine = engine_from_mapping(chosen.engine.values, str(chosen.engine))
    drafter = drafter_from_mapping(chosen.drafter.values, str(chosen.drafter))
    server = MeasuredServer(profile, arguments.token_budget, drafter=drafter)
    return Fit(server, engine, whole=arguments.all), chosen


def _check(points: Sequence[MeasuredPoint], given: int) -> None:
    """Refuse points that cannot tell an engine's numbers apart."""
    left_out = f" whose caches fit, of {given}" if len(points) < given else ""
    if len(points) < LEAST_POINTS:
        raise SpecsimError(
            f"{len(points)} points{left_out}; expected at least {LEAST_POINTS}, half of which are held out; "
            "with fewer, `specsim compare RUN RESULT` holds a run at each load against its result"
        )
    sent = {each.load.sent for each in points if not each.load.drafts}
    if len(sent) == 1:
        raise SpecsimError(
            f"every point has {sent.pop()}; expected at least 2, else overhead_s and request_s cannot be told apart"
        )


def _notes(engine: Engine, host_share: float, all_points: Group, given: int, wrong: str | None) -> Iterator[str]:
    if given > all_points.points:
        left_out = given - all_points.points
        yield f"left out, {left_out} of {given} points: their caches do not fit beside the weights"
    if not engine.overhead_s and not engine.request_s:
        yield (
            "no host time was found: the profile's passes alone take as long as was measured, or longer "
            f"(TPOT {-100 * host_share:+.0f}%, median); expected a profile whose passes are faster"
        )
    if host_share > MOST_HOST_SHARE:
        yield (
            f"host time is {100 * host_share:.0f}% of TPOT (median), more than the kernels'; check the profile's GPU "
            "and model, and the unit of the points"
        )
    if wrong is not None:
        yield (
            f"not fit for use: {wrong}: host time alone does not explain these points; "
            "check the profile's GPU and model, the unit of the points, and how the engine batches"
        )


def _row(group: Group) -> list[str]:
    cells = (cell for each in (group.tpot, group.e2e, group.ttft) for cell in str(each).split(" / "))
    return [group.name, f"{group.points}", *cells]


def _draw(held: Sequence[Held], file: Path) -> None:
    """Draw measured against held-out TPOT and TTFT, by concurrency."""
    import numpy as np

    from specsim.calibration.fit import by_concurrency
    from specsim.figures.plots import save
    from specsim.figures.slo import Pairs, calibration

    some = list(by_concurrency(held))

    def pairs(key: str) -> dict[str, Pairs]:
        columns = {name: [[getattr(point, key) for point in each] for each in those] for name, those in some}
        return {name: Pairs(*(1e3 * np.array(values).T)) for name, values in columns.items()}

    save({file.stem: calibration({"TPOT": pairs("tpot_s"), "TTFT": pairs("ttft_s")})}, file.parent, ["png"])


HOW = ("trace.time_unit", "trace.tick_s", "trace.columns", "trace.turns")
IMPORT_HELP = f"""\
FILE: a result of `vllm bench serve` or sglang.bench_serving, an export of aiperf, genai-perf or GuideLLM, a scrape of
vLLM's /metrics, a server's log, spans of OpenTelemetry or a gateway's log as CSV or JSON lines; their content tells
which. Words such as trace.time_unit=ms ({", ".join(HOW)}) say how requests are read.
"""


def add_import(commands: Any) -> None:
    """Add the command to those of `specsim`."""
    said = "files of benchmarks and servers -> traces, acceptance, points"
    parser = added(commands, "import", import_command, said, IMPORT_HELP)
    parser.add_argument("settings", nargs="+", metavar="FILE", help="what your benchmark or server wrote")
    parser.add_argument("--out", type=expanded, required=True, metavar="DIR", help="folder for what is found")
    parser.add_argument("--force", action="store_true", help="replace what is there")


def import_command(arguments: argparse.Namespace) -> int:
    """Write what the files hold below a folder, and print a line for each thing that is found or missing."""
    from specsim.calibration.importing import import_files

    words = [word for word in arguments.settings if word.startswith("trace.") and "=" in word]
    files = [expanded(word) for word in arguments.settings if word not in words]
    if not files:
        raise SpecsimError(f"{' '.join(words)}: no file; expected one to import")
    say(*import_files(files, _how(words), arguments.out, force=arguments.force))
    return 0


def _how(words: Sequence[str]) -> How:
    """Return how requests are read, by settings of a trace from a file."""
    from specsim.config.configured import from_words
    from specsim.files.checked_mapping import CheckedMapping
    from specsim.workload.entry import how

    for word in words:
        if not word.startswith(HOW):
            raise SpecsimError(f"{word}: expected one of {', '.join(HOW)}")
    trace = from_words(["trace=./any.csv", *words], sweep=False)[0].chosen.trace
    return how(CheckedMapping("", "trace", trace.values))
