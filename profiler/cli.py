"""``specsim profile`` and ``specsim fidelity``: a module per command, imported only when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from specsim.commands.parser import Parser

SUBCOMMANDS = {
    "latency": ("profiler.latency.command", "time passes of a model pair and write a profile"),
    "compose": ("profiler.compose.command", "compose a profile of any model on any GPU from measured kernels"),
    "fit": ("profiler.latency.profile_file", "fit a profile again to raw samples, no GPU needed"),
    "acceptance": ("profiler.acceptance.command", "record how often a draft is accepted, and fit curves"),
}


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; return 0, or 3 if time ran out and the same command can continue."""
    wanted = argv[0] if argv else ""
    if wanted not in SUBCOMMANDS:
        parser = Parser(prog="specsim profile", description="Turn hardware and a model pair into a profile.")
        commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
        for name, (_, line) in SUBCOMMANDS.items():
            commands.add_parser(name, help=line)
        parser.parse_args(argv)
    module, line = SUBCOMMANDS[wanted]
    command = import_module(module)
    parser = Parser(prog=f"specsim profile {wanted}", description=line[0].upper() + line[1:] + ".")
    command.add_arguments(parser)
    code: int = command.run(parser.parse_args(argv[1:]))
    return code


def fidelity(argv: Sequence[str]) -> int:
    """Run ``specsim fidelity``; return 0, or 1 if a run failed or is not lossless."""
    from profiler.fidelity import command

    parser = Parser(prog="specsim fidelity", description="Hold simulated runs against real ones.")
    command.add_arguments(parser)
    arguments = parser.parse_intermixed_args(argv)
    arguments.typed = list(argv)
    return command.run(arguments)
