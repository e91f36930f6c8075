"""``python -m tools.gpu_session``: all that a lent GPU is for, in one command that can be cut at any time."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from profiler.latency.command import TIME_IS_UP
from profiler.options import minutes
from specsim.commands.parser import Parser
from specsim.commands.parser import run as commanded
from specsim.errors import SpecsimError, nearest, say
from specsim.files.checked_mapping import expanded
from tools.gpu_session.pairs import arguments_of, path_of, read_pairs
from tools.gpu_session.state import OTHER_GPU, STAGES, State, read_state, unpack

LIMITS = {"check": 4.0, "sweep": 8.0, "engine": 8.0, "rest": 8.0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 2 if a stage failed, 3 if time ran out before the last was done, 4 if a fit is unfit."""
    return commanded(lambda: run(_parser().parse_args(sys.argv[1:] if argv is None else argv)))


def _parser() -> Parser:
    parser = Parser(prog="python -m tools.gpu_session", description="Check, profile and time pairs.")
    parser.add_argument("pairs", nargs="?", default="gpu", metavar="NAME", help="`gpu`, or a YAML file with pairs")
    parser.add_argument(
        "--state",
        type=expanded,
        required=True,
        metavar="DIR",
        help="folder of all that is measured; run again to go on",
    )
    parser.add_argument("--stages", default=",".join(STAGES), metavar="A,B", help="default: %(default)s")
    told = ", ".join(f"{name}={value:g}" for name, value in LIMITS.items())
    parser.add_argument("--limits", default="", metavar="A=X,B=Y", help=f"minutes of a stage: {told} where not given")
    parser.add_argument("--minutes", type=minutes, metavar="X", help="minutes of all stages together")
    parser.add_argument(
        "--archive", type=expanded, metavar="FILE", help="what to bring home (default: session.zip in --state)"
    )
    parser.add_argument("--resume", type=expanded, metavar="FILE", help="an archive to go on from, in a new --state")
    parser.add_argument("--quick", action="store_true", help="coarse grids: a smoke test, named NAME-quick")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run the stages; return 2 if one failed, 3 if time ran out before the last was done, 4 if a fit is unfit."""
    from profiler.lock import only_one
    from profiler.models.loading import require_extra, require_for_a_sweep
    from tools.gpu_session.supervisor import ENDINGS, Supervisor, meaning

    started = time.monotonic()
    require_extra()
    require_for_a_sweep()
    stages, limits = _stages(arguments.stages), _limits(arguments.limits)
    pairs = read_pairs(path_of(arguments.pairs))
    for name, words in pairs.items():
        arguments_of(name, [*words, "--out", name])
    if arguments.resume is not None:
        unpack(arguments.resume, arguments.state)
    archive = arguments.archive or arguments.state / "session.zip"
    deadline = float("inf") if arguments.minutes is None else started + 60 * arguments.minutes
    with only_one(arguments.state / "session.json"):
        state = _state(arguments.state, pairs, quick=arguments.quick)
        codes = Supervisor(state, archive, limits, deadline).run(stages)
    say(f"{', '.join(f'{stage}: {meaning(code)}' for stage, code in codes.items())}; {archive}")
    if any(code not in ENDINGS or code == OTHER_GPU for code in codes.values()):
        return 2
    return TIME_IS_UP if TIME_IS_UP in codes.values() else max(codes.values(), default=0)


def _state(folder: Path, pairs: dict[str, list[str]], *, quick: bool) -> State:
    """Return the state in a folder, or begin one.

    Raises
    ------
    SpecsimError
        When the folder holds a session of other pairs, or of another grid.
    """
    known = read_state(folder)
    if known is None:
        state = State(folder, pairs, quick)
        state.write()
        return state
    if known.pairs != pairs:
        raise SpecsimError(
            f"--state {folder}: a session of other pairs ({', '.join(known.pairs)}); expected another DIR"
        )
    if known.quick != quick:
        grids = {True: "coarse grids (--quick)", False: "full grids"}
        raise SpecsimError(f"--state {folder}: a session on {grids[known.quick]}; expected another DIR")
    return known


def _stages(given: str) -> list[str]:
    names = given.split(",")
    for name in names:
        if name not in STAGES:
            raise SpecsimError(f"--stages: {name!r} is unknown{nearest(name, STAGES)}")
    return [name for name in STAGES if name in names]


def _limits(given: str) -> dict[str, float]:
    limits = dict(LIMITS)
    for each in filter(None, given.split(",")):
        name, _, text = each.partition("=")
        if name not in STAGES:
            raise SpecsimError(f"--limits: {name!r} is unknown{nearest(name, STAGES)}")
        try:
            limits[name] = minutes(text)
        except argparse.ArgumentTypeError as error:
            raise SpecsimError(f"--limits: {name}: {error}") from None
    return limits


if __name__ == "__main__":
    raise SystemExit(main())
