"""``specsim fidelity``: schedulers on real passes and on simulated ones, and how far they are apart."""

from __future__ import annotations

import argparse
import shlex
from argparse import BooleanOptionalAction
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.options import listed, wholes
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from profiler.fidelity.study import Study
    from profiler.fidelity.tables import Tables

OUT = Path("results/fidelity")
REMARKS, REPORT, FIGURES = "remarks.md", "report.md", "figures"
OF_A_PAIR = ("target", "draft", "random_weights", "drafter", "skip_layers", "lookup_ngrams", "text", "prompts")
CHOSEN = {
    "rps": "fidelity chooses it; expected --loads",
    "out": "fidelity chooses it; expected --out",
    "replica_profiles": "real passes have one replica; expected profile=FILE, or none",
}
"""Settings that are refused, and why."""
EPILOG = """\
STUDY is a file, or one of conf/fidelity: cpu, gpu, tiny. Without it one pair is studied, from these options:
  specsim fidelity +scheduler=continuous,vllm_spec trace=poisson requests=8 \\
    --random-weights tiny-llama tiny-llama-skip1 --text drawn --out results/mine
Settings are those of `specsim run`; profile=FILE takes a profile that is there. Runs are kept: the same command goes
on where it was stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.add_argument("settings", nargs="*", metavar="[STUDY] KEY=VALUE")
    parser.add_argument("--out", type=expanded, metavar="DIR", help="of all files (results/fidelity/STUDY)")
    parser.add_argument("--page", type=expanded, metavar="FILE", help="the report (report.md in --out)")
    parser.add_argument("--redraw", action="store_true", help="run nothing: report and figures from the stored tables")
    parser.add_argument("--pairs", nargs="+", default=[], metavar="NAME", help="of a study: these pairs alone")
    loads = listed(float, "numbers, such as 0.5,1,1.5")
    parser.add_argument("--loads", type=loads, metavar="A,B", help="multiples of the service rate (0.5,1,1.5)")
    parser.add_argument("--repeats", type=int, metavar="N", help="real runs of each cell (2)")
    parser.add_argument("--target", metavar="M", help="Hugging Face name, folder, .gguf file, or package:NAME")
    parser.add_argument("--draft", metavar="M", help="likewise")
    parser.add_argument("--random-weights", nargs="+", metavar="SHAPE", help="of target and draft")
    parser.add_argument("--drafter", choices=("separate", "skip", "lookup"), help="what proposes tokens (separate)")
    parser.add_argument("--skip-layers", type=wholes, metavar="A,B", help="of the target, with --drafter skip")
    parser.add_argument("--lookup-ngrams", type=wholes, metavar="A,B", help="fewest and most tokens of a match (1,3)")
    parser.add_argument(
        "--text", choices=("model", "drawn"), help="the text: the target's own, or drawn acceptance (model)"
    )
    parser.add_argument("--prompts", nargs="+", type=expanded, metavar="FILE", help="texts (the shipped ones)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where the models run (cpu)")
    parser.add_argument("--clock", choices=("measured", "wall"), help="of real runs (measured)")
    parser.add_argument("--graphs", action=BooleanOptionalAction, help="replay passes as CUDA graphs (no)")
    parser.add_argument("--dtype", help="of the models (float32; cuda: bfloat16)")
    parser.add_argument("--threads", type=int, metavar="N", help="of torch on the CPU (torch's choice)")
    parser.add_argument("--cache-tokens", type=int, metavar="N", help="that both models cache (16384)")
    parser.add_argument("--grid", type=expanded, metavar="FILE", help="sizes at which the profile is measured")


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing and write the report; return 1 if a run failed or is not lossless."""
    from profiler.fidelity.tables import read_tables
    from profiler.fidelity.verdicts import failed, faults

    root: Path = arguments.out
    # Stored tables say all there is to draw.
    if not (arguments.redraw and root and not arguments.settings):
        study = study_of(arguments)
        root = root or OUT / study.name
        if not arguments.redraw:
            _serve(study, root, arguments)
    tables = read_tables(root)
    say(*write_report(tables, root, arguments.page))
    wrong = {
        "failed": len(failed(tables.cells)),
        "clearly differ from what the target says alone": faults(tables.cells),
    }
    for said, count in wrong.items():
        if count:
            say(f"fidelity {tables.about['name']}: {count} of {len(tables.cells)} runs {said}", error=True)
    return int(any(wrong.values()))


def _serve(study: Study, root: Path, arguments: argparse.Namespace) -> None:
    """Run what is missing and write the tables."""
    from profiler.fidelity.tables import ABOUT, gathered, write_tables
    from profiler.lock import only_one
    from profiler.models.loading import require_extra
    from profiler.text import progress

    require_extra()
    from profiler.fidelity.running import run_study

    total = sum(len(study.cells(pair)) for pair in study.pairs)
    with only_one(root / ABOUT), progress(total, "cell") as notify:
        try:
            files = run_study(study, root, notify, command=shlex.join(["specsim", "fidelity", *arguments.typed]))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"the cells that ended are kept; the same command with --out {root} goes on"
            ) from None
        write_tables(gathered(files, root), root)


def write_report(tables: Tables, root: Path, page_file: Path | None) -> list[Path]:
    """Write the report of tables and its figures, with the remarks in `root`; return the files."""
    from profiler.fidelity.figures import draw
    from profiler.fidelity.report import page
    from profiler.text import write

    file = page_file or root / REPORT
    remarks = root / REMARKS
    said = remarks.read_text(encoding="utf-8") if remarks.exists() else ""
    write(file, page(tables, figures=FIGURES, remarks=said))
    return [file, *draw(tables, file.parent / FIGURES)]


def study_of(arguments: argparse.Namespace) -> Study:
    """Return the study that a command line names, or describes by options.

    Raises
    ------
    SpecsimError
        One line: an option beside a study that has its own, no scheduler, a word that is neither study nor setting.
    """
    from profiler.fidelity.study import LOADS, Study, StudyPair, study_named

    words: list[str] = list(arguments.settings)
    name = words.pop(0) if words and "=" not in words[0] else None
    for word in words:
        if "=" not in word:
            raise SpecsimError(f"fidelity {word}: expected one study, and then KEY=VALUE")
    keyed = {word.lstrip("+").partition("=")[0]: word for word in words}
    for key, problem in CHOSEN.items():
        if key in keyed:
            raise SpecsimError(f"{key}: {problem}")
    schedulers = keyed.pop("scheduler", "").partition("=")[2]
    flags = {flag: getattr(arguments, flag) for flag in OF_A_PAIR if getattr(arguments, flag) is not None}
    if name is not None:
        if schedulers:
            raise SpecsimError(f"scheduler: the study {name} names them; expected a study of your own, or no study")
        for flag in flags:
            raise SpecsimError(f"--{flag.replace('_', '-')}: the study {name} says it; expected no such option")
        return _with_options(replace(study_named(name).only(arguments.pairs), typed=tuple(words)), arguments)
    if arguments.pairs:
        raise SpecsimError(f"--pairs {' '.join(arguments.pairs)}: expected a study before it")
    if not schedulers:
        raise SpecsimError("fidelity: no scheduler; expected a study, or +scheduler=NAME beside models")
    names = schedulers.strip("[]").split(",")
    told: dict[str, Any] = {flag: tuple(each) if isinstance(each, list) else each for flag, each in flags.items()}
    pair = StudyPair(**({"name": "pair", "text": "model"} | told))
    said = f"{', '.join(names)} on real passes and simulated"
    study = Study("mine", said, LOADS, dict.fromkeys(names, ()), (pair,), tuple(keyed.values()))
    return _with_options(study, arguments)


def _with_options(study: Study, arguments: argparse.Namespace) -> Study:
    from profiler.latency.points import read_grid, shipped

    names = ("loads", "repeats", "clock", "device", "graphs", "dtype", "threads", "cache_tokens")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    base = study.grid
    if "device" in given:
        given = {"dtype": "", "graphs": study.graphs and given["device"] == "cuda"} | given
        base = shipped(given["device"], quick=False)
    grid = base if arguments.grid is None else read_grid(arguments.grid, base)
    say(*(f"note: {line}" for line in grid.left_out), error=True)
    return replace(study, **given, grid=grid)
