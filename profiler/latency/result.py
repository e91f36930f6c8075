"""``specsim profile fit`` and the end of a sweep: the profile, its figures, a table of errors, and an exit code."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from profiler.latency.points import ROLES
from profiler.latency.profile_file import HEADING, check_apart_from, check_writable, profile_mapping
from profiler.text import write, yaml_text
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded
from specsim.latency.fitness import unfit
from specsim.latency.profile import profile_from_mapping

UNFIT = 4
"""Exit code of a fit that was written and is not fit for use."""
NOTED = ("skipped: ", "partial: ", "lower grid: ")


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of the profile, the raw samples and the figures."""

    profile: Path
    samples: Path
    figures: Path

    @classmethod
    def of(cls, out: Path, samples: Path | None, figures: Path | None) -> Places:
        """Return the places; by default samples are beside the profile, and figures beside the samples."""
        kept = samples or out.with_name(f"{out.stem}.samples.parquet")
        return cls(out, kept, figures or kept.parent)


class Result(NamedTuple):
    """The text for the user, and the exit code: 0, or `UNFIT`."""

    text: str
    code: int


def write_profile(places: Places, samples: list[Path]) -> Result:
    """Fit, write profile and figures, and return the result.

    Raises
    ------
    SpecsimError
        When the samples are too few or a file cannot be written.
    """
    from profiler.latency.figures import draw

    name = places.profile.stem
    mapping, choices = profile_mapping(name, samples)
    try:
        write(places.profile, yaml_text(mapping, HEADING))
        figures = draw(choices, mapping, places.figures, name)
    except OSError as error:
        raise SpecsimError(f"{error.filename or places.profile}: cannot be written: {error.strerror}") from None
    said = unfit(profile_from_mapping(mapping, name))
    lines = [*summary(mapping), str(places.profile), *map(str, samples), *map(str, figures)]
    if said is not None:
        lines.append(f"{said}; specsim refuses {places.profile} unless any_fit=true")
    return Result("\n".join(lines), 0 if said is None else UNFIT)


def summary(mapping: dict[str, Any]) -> list[str]:
    """Return a table of held-out errors of the form in use, and a line about each model's ridge."""
    form = mapping["form"]
    lines = [f"{mapping['description']}: {form}", f"{'held-out error':18}{'median':>8}{'p95':>8}{'worst':>8}"]
    for role in ROLES:
        for kind, error in mapping[role]["held_out_error"][form].items():
            shown = "".join(f"{100 * error[each]:7.1f}%" for each in ("median", "p95", "worst"))
            lines.append(f"{role + ' ' + kind:18}{shown}")
    for role, knee in mapping["checks"]["knee_tokens"].items():
        ridge = "no ridge" if knee["fitted"] is None else f"ridge at {knee['fitted']:.0f} batched tokens"
        lines.append(f"{role}: {ridge}; compute over bandwidth {knee['compute_over_bandwidth']:.0f}")
    lines += [line for line in mapping["assumptions"] if line.startswith(NOTED)]
    return lines


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
