"""``specsim profile fit``: fit a profile to existing samples."""

from __future__ import annotations

import argparse

from profiler.latency.profile_file import check_apart_from, check_writable
from profiler.latency.result import Places, write_profile
from specsim.errors import say
from specsim.files.checked_mapping import expanded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.add_argument("samples", nargs="+", type=expanded, metavar="SAMPLES", help="Parquet files of one pair")
    parser.add_argument(
        "--figures", type=expanded, metavar="DIR", help="folder for the figures (default: beside SAMPLES)"
    )
    parser.add_argument("--out", type=expanded, required=True, metavar="FILE", help="the profile, a YAML file")


def run(arguments: argparse.Namespace) -> int:
    """Fit and write; return 0, or 4 if the fit is not fit for use."""
    places = Places.of(arguments.out, arguments.samples[0], arguments.figures)
    check_apart_from(places.profile, arguments.samples)
    check_writable(places.profile)
    result = write_profile(places, arguments.samples)
    say(*result.text.split("\n"))
    return result.code
