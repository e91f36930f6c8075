"""`specsim profile` and `specsim fidelity`: handed over to the profiler, which has parsers of its own."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec

from specsim.errors import SpecsimError


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
