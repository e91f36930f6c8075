"""`specsim import`: files of benchmarks and servers -> traces, an acceptance, points of a server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specsim.commands.options import added
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from specsim.workload.entry import How

HOW = ("trace.time_unit", "trace.tick_s", "trace.columns", "trace.turns")
IMPORT_HELP = f"""\
FILE: a result of `vllm bench serve` or sglang.bench_serving, an export of aiperf or GuideLLM, a scrape of vLLM's
/metrics, a server's log, spans of OpenTelemetry or a gateway's log as CSV or JSON lines; their content tells which.
Words such as trace.time_unit=ms ({", ".join(HOW)}) say how requests are read.
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
    config = from_words(["trace=./any.csv", *words], sweep=False)[0].config
    return how(CheckedMapping("", "trace", config["trace"]))
