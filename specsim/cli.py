"""The command line: a thin caller of what `specsim.api` calls."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands.calibrate import add_import, calibrate_command, profiler_command
from specsim.commands.compare import add_compare
from specsim.commands.parser import Parser, added, asked_for, guarded, run
from specsim.commands.run import add_sweep, add_sweep_options, run_command
from specsim.commands.search import add_find, add_tune
from specsim.config import schema
from specsim.errors import SpecsimError, nearest, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from specsim.store.runs import StoredRun
    from specsim.store.sweeps import Sweep

GROUPS = {
    "schedulers": "scheduler",
    "traces": "trace",
    "profiles": "profile",
    "slo": "slo",
    "acceptance": "acceptance",
    "drafters": "drafter",
    "engines": "engine",
    "routers": "router",
}

SWEEP_OPTIONS = ("x", "line", "against", "style")

RUN_HELP = """\
settings (key=value; groups also as +scheduler=NAME):
  scheduler=NAME    policy                    trace=NAME       requests to replay
  profile=NAME      models and hardware       slo=NAME         classes and objectives
  acceptance=NAME   how drafts are accepted   drafter=NAME     what proposes tokens
  engine=NAME       host time, padding        router=NAME      which replica serves
{keys}
A value with a slash or a file suffix is a path: profile=./mine.yaml trace=~/mine.csv
With -m, values are swept: rps=2,3,4 seed=range(0,5) 'scheduler=glob(vllm*)'; --jobs N runs N points at once
Any key of a chosen file can be set: scheduler.verify_tokens=256 slo.classes.chat.ttft_s=0.2
--cfg job shows their values; docs/keys.md has defaults and bounds, docs/command-line.md the rest.
"""

CALIBRATE_HELP = """\
POINTS: CSV, JSON or Parquet with the columns isl, osl, concurrency or rate, ttft_ms and tpot_ms, a row a point; or
results of `vllm bench serve --save-result`, with --max-concurrency N (closed loops) or --request-rate R (open loops).
Points with speculation have num_speculative_tokens, too, and acceptance_length, acceptance_rate or acceptance_rates.
At least 15 points. Exit code 4: the engine file is written, but not fit for use. docs/engines.md has an example.
"""

VERBS = {
    "specsim profile": ("latency", "compose", "fit", "acceptance"),
    "specsim trace": ("fetch",),
    "specsim sweep": ("status",),
}
"""Words that stand below a command."""
HYDRAS = ("-cn", "-cp", "-cd")
"""Flags of Hydra's for configurations of one's own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its code, or 2 after a line about what was wrong."""
    if "_ARGCOMPLETE" in os.environ:
        from specsim.commands.completion import complete

        complete(_parser()[0], GROUPS)
    words = sys.argv[1:] if argv is None else list(argv)
    return run(lambda: _command(words), debug="--debug" in words)


def _command(words: list[str]) -> int:
    arguments = _arguments(words)
    return guarded(lambda: int(arguments.command(arguments)))


def _arguments(words: list[str]) -> argparse.Namespace:
    """Return the command and what it was given; leave with 2 and a line where that is no command line."""
    if words[:1] in (["profile"], ["fidelity"]):
        return argparse.Namespace(command=profiler_command, words=words)
    parser, commands = _parser()
    first = next((word for word in words if not word.startswith("-")), "")
    if "=" in first or (words[:1] and words[0] in ("-m", "--multirun", "--cfg", "-c")):
        parser.error(f"no command; expected specsim run {' '.join(words)}")
    if first and first not in commands:
        above = next((each for each, verbs in VERBS.items() if first in verbs), "")
        parser.error(f"{first}: unknown command{f'; expected {above} {first}' if above else nearest(first, commands)}")
    # -c of --cfg would take the rest of such a word.
    if first == "run" and (hydras := next((word for word in words if word[:3] in HYDRAS), "")):
        commands[first].error(_unrecognized(hydras, commands[first]))
    arguments, rest = parser.parse_known_args(words)
    strange = next((word for word in rest if word.startswith("-")), None)
    if strange is None and rest and hasattr(arguments, "settings"):
        arguments.settings += rest
    elif rest:
        commands.get(first, parser).error(_unrecognized(strange or rest[0], commands.get(first, parser)))
    elif not first:
        parser.error(f"no command; expected one of {', '.join(commands)}")
    return arguments


def _unrecognized(word: str, parser: argparse.ArgumentParser) -> str:
    """Say what a word that a parser does not know may have meant."""
    from specsim.config.synonyms import chosen_by, for_word

    verb = parser.prog.rpartition(" ")[2]
    key, equals, value = word.lstrip("-").partition("=")
    if instead := chosen_by(verb, word):
        return f"{word}: {instead}"
    if verb in ("run", "find", "tune") and key.partition(".")[0] in schema.known_keys():
        return f"{word}: settings have no dashes; expected {key}={value if equals else 'VALUE'}"
    instead = for_word(word)
    if instead and (verb == "run" or " beside " not in instead):
        return f"{word}: unknown{instead}"
    flags = [flag for action in parser._actions for flag in action.option_strings]
    return f"unrecognized argument {word}{nearest(word, flags, 0.8) if word.startswith('-') else ''}"


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser, and that of each command."""
    parser = Parser(
        prog="specsim",
        description="Simulate multi-SLO speculative LLM serving.",
        epilog="To begin: specsim run trace=poisson rps=2; specsim list; specsim run --help",
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    _add_run(commands)
    add_sweep(commands)
    listing = added(commands, "list", _list, "what can be chosen")
    listing.description = "Print what can be chosen, with a line about each name: scheduler=NAME of a run, and so on."
    kinds = "{" + ",".join(GROUPS) + "}"
    listing.add_argument("kind", nargs="?", metavar=kinds, help="what to list (all of them)")
    plot = added(commands, "plot", _plot, "draw figures of a run or a sweep, or compare runs")
    plot.add_argument("runs", nargs="+", type=expanded, metavar="RUN", help="run folders, or the folder of a sweep")
    plot.add_argument("--out", type=expanded, help="folder for the figures (figures/ in the first folder)")
    plot.add_argument("--x", metavar="KEY", help="of a sweep: the number along the axis (rps)")
    plot.add_argument("--line", metavar="KEY", help="of a sweep: the setting with a line for each value (scheduler)")
    plot.add_argument("--against", metavar="VALUE", help="of a sweep: the line that differences are from (the best)")
    plot.add_argument("--style", metavar="NAME", help="of a sweep: screen, or paper: PDF, captions in a file (screen)")
    events = added(commands, "trace-events", _trace_events, "a run for ui.perfetto.dev, as JSON")
    events.add_argument("run", type=expanded, metavar="RUN", help="folder of a run with passes=true")
    events.add_argument("--out", type=expanded, help="file to write (trace_events.json in the folder)")
    report = added(commands, "report", _report, "a run or a sweep as one HTML page")
    report.add_argument("runs", nargs="+", type=expanded, metavar="RUN", help="run folders, or the folder of a sweep")
    report.add_argument("--out", type=expanded, help="file to write (report.html in the first folder)")
    _add_calibrate(commands)
    add_find(commands)
    add_tune(commands)
    add_import(commands)
    add_compare(commands)
    trace = commands.add_parser("trace", help="fetch a public trace")
    verbs = trace.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    added(verbs, "fetch", _fetch, "download a trace from its official home").add_argument("name")
    completion = added(commands, "completion", _completion, "print what makes a shell complete: bash, zsh or fish")
    completion.add_argument("shell", metavar="{bash,zsh,fish}", choices=("bash", "zsh", "fish"))
    profile = commands.add_parser("profile", help="measure hardware and a model pair").add_subparsers()
    for verb in VERBS["specsim profile"]:
        profile.add_parser(verb).add_argument("files", nargs="*")
    fidelity = commands.add_parser("fidelity", help="schedulers on real models against their simulation")
    fidelity.add_argument("study", nargs="*")
    return parser, commands.choices


def _add_run(commands: Any) -> None:
    keys = "\n".join(f"  {name + '=':<22}{line}" for name, line in schema.lines().items())
    simulate = added(commands, "run", run_command, "simulate", RUN_HELP.format(keys=keys))
    simulate.add_argument("-m", "--multirun", action="store_true", help="sweep: a run for each combination of values")
    add_sweep_options(simulate, "with -m: ")
    simulate.add_argument(
        "--against", metavar="NAMES", help="schedulers whose attainment is shown, too: vllm,vllm_spec"
    )
    simulate.add_argument("-c", "--cfg", metavar="job", help="show the settings of the run, and run nothing")
    simulate.add_argument("--debug", action="store_true", help="show the traceback of an error, your own lines in it")
    simulate.add_argument("settings", nargs="*", metavar="KEY=VALUE")


def _add_calibrate(commands: Any) -> None:
    said = "points of your own server -> an engine file"
    calibrate = added(commands, "calibrate", calibrate_command, said, CALIBRATE_HELP)
    calibrate.add_argument(
        "points",
        nargs="+",
        type=expanded,
        metavar="POINTS",
        help="files of closed loops (clients that wait) and open loops (rates)",
    )
    calibrate.add_argument("--profile", required=True, help="of the GPUs and the model that were measured")
    calibrate.add_argument("--engine", help="what to begin with: its other keys are kept (what the profile brings)")
    calibrate.add_argument("--drafter", help="of points with speculation (the profile's draft model)")
    calibrate.add_argument("--all", action="store_true", help="fit pipeline_steps and frontend_s to TTFT, too")
    calibrate.add_argument("--token-budget", type=int, default=8192, help="batched tokens of a pass at most (8192)")
    calibrate.add_argument("--out", type=expanded, default=Path("engine.yaml"), help="file to write (engine.yaml)")
    calibrate.add_argument("--force", action="store_true", help="replace what is there")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version")

    def __call__(self, *_: object) -> None:
        from importlib.metadata import version

        say(f"specsim {version('specsim')}")
        raise SystemExit(0)


def _list(arguments: argparse.Namespace) -> int:
    from specsim.commands.listing import lines

    kinds = list(GROUPS) if arguments.kind is None else [arguments.kind]
    for kind in kinds:
        if kind not in GROUPS:
            raise SpecsimError(f"list {kind}: unknown{nearest(kind, GROUPS)}")
        if len(kinds) > 1:
            say(f"{kind}:")
        say(*(f"{'  ' if len(kinds) > 1 else ''}{line}" for line in lines(GROUPS[kind])))
    return 0


def _plot(arguments: argparse.Namespace) -> int:
    from specsim.api import load_run, load_sweep
    from specsim.metrics.seeds import failed_said
    from specsim.runs import execute as execution
    from specsim.store.sweeps import holds_runs

    places, given = arguments.runs, asked_for(arguments, SWEEP_OPTIONS)
    if any(holds_runs(place) for place in places):
        sweep = load_sweep(*places)
        failed = len(sweep.failures)
        for line in (*sweep.whole_notes, *failed_said(failed, failed + len(sweep))):
            say(f"note: {line}")
        say(*sweep.plot(arguments.out or places[0] / "figures", **given))
        return 0
    for name, value in given.items():
        raise SpecsimError(f"--{name} {value}: these are runs; expected the folder of a sweep")
    runs = [load_run(folder) for folder in places]
    if len(runs) == 1 and runs[0].passes is None:
        say("note: no timeline; a run with passes=true keeps what it needs")
    elif len(runs) == 1 and not runs[0].metrics["specsim"]["iterations"]:
        say("note: no timeline: no request was served")
    files = execution.plot(runs, arguments.out or places[0] / "figures")
    if len(runs) > 1 and arguments.out is None:
        say("note: the figure of all runs stands in the first run's folder; --out DIR puts it elsewhere")
    say(*files)
    return 0


def _trace_events(arguments: argparse.Namespace) -> int:
    from specsim.api import load_run
    from specsim.store.trace_events import write_trace_events

    say(write_trace_events(load_run(arguments.run), arguments.out or arguments.run / "trace_events.json"))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from specsim.api import load_run, load_sweep
    from specsim.store.sweeps import Sweep, holds_runs

    places = arguments.runs
    if any(holds_runs(place) for place in places):
        told: StoredRun | Sweep = load_sweep(*places)
    else:
        told = load_run(places[0]) if len(places) == 1 else Sweep([load_run(place) for place in places])
    say(told.report(arguments.out or places[0] / "report.html"))
    return 0


def _completion(arguments: argparse.Namespace) -> int:
    from specsim.commands.completion import script

    say(*script(arguments.shell).splitlines())
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    from specsim.config.configured import from_words
    from specsim.workload.fetch import fetch

    trace = from_words([f"trace={arguments.name}"], sweep=False)[0].chosen.trace
    say(*fetch(arguments.name, trace.values, progress=True))
    return 0
