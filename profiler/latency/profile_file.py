"""The profile of a sweep: the mapping of its YAML, its figures and table of errors."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profiler.latency.choice import FormChoice, Statistic, judge, usable
from profiler.latency.fit import fitted_keys
from profiler.latency.points import ROLES
from profiler.latency.samples import Sample, check_apart, check_finished, check_same, machines, read_samples
from profiler.models.shapes import BY_NAME, widths
from profiler.text import write, yaml_text
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded
from specsim.latency.forms import Roofline
from specsim.latency.model import PROFILE_VERSION
from specsim.latency.profile import profile_from_mapping

HEADING = "Written by `specsim profile latency`; docs/profiling.md says how. Seconds, bytes and tokens."
ENGINE = "vllm_0_15"
HOST = {
    "cuda": f"kernels alone: overhead_s is 0, and the host's time is an engine's (engine={ENGINE})",
    "cpu": "overhead_s: inputs laid out on the host and tokens chosen, at up to 64 tokens; no serving engine",
}
"""Where the host's time comes from, by device."""
SMOKE_TEST = "smoke test"
QUICK_GRID = "quick"
ENGINE_TOKENS = 64
SHOWN_SKIPPED = 6
BUSY = 0.25
"""The relative spread of a point's runs, at the ninth decile of points, above which it is told."""


def read_all(paths: list[Path]) -> tuple[dict[str, Any], list[Sample]]:
    """Return the facts and the samples of files, all of one pair on one piece of hardware.

    Raises
    ------
    SpecsimError
        When a file cannot be read, is unfinished, is of another pair or hardware, or is given twice.
    """
    facts, samples = read_samples(paths[0])
    check_finished(paths[0], facts)
    for path in paths[1:]:
        others, more = read_samples(path)
        check_same(path, others, facts)
        facts |= machines(path, others, facts)
        check_apart(path, samples, more)
        samples += more
    return facts, samples


def profile_mapping(
    name: str, paths: list[Path], statistic: Statistic = "median"
) -> tuple[dict[str, Any], dict[str, FormChoice]]:
    """Return the keys of a profile fitted to samples files, and the fits of target and draft.

    A `median` is what a pass takes on an undisturbed machine. A `mean` is what passes take in a run, one with
    the other.

    Raises
    ------
    SpecsimError
        When samples are too few, of different pairs, or make no valid profile.
    """
    facts, samples = read_all(paths)
    choices = {role: judge(samples, role, statistic) for role in ROLES}
    scores = {form: sum(choices[role].forms[form].score for role in ROLES) for form in ("roofline", "linear")}
    mapping: dict[str, Any] = {
        "name": name,
        "profile_version": PROFILE_VERSION,
        "description": _description(facts),
        # This profiler's own host time is no server's.
        **({"suggests": {"engine": ENGINE}} if facts["device"] == "cuda" else {}),
        "hardware": facts["hardware"],
        "gpus": facts["tp"],
        "memory_bytes": facts["memory_bytes"] * facts["tp"],
        "form": min(scores, key=lambda form: scores[form]),
        **{role: _model(facts, choices[role], samples, role) for role in ROLES},
    }
    mapping["checks"] = {"knee_tokens": {role: _knee(choices[role], facts) for role in ROLES}}
    mapping["provenance"] = [_provenance(path, facts, samples) for path in paths]
    mapping["assumptions"] = list(
        dict.fromkeys(
            [
                *_incomplete(facts, samples),
                *facts["assumptions"],
                HOST[facts["device"]],
                *_skipped(samples),
                *_spread(samples),
            ]
        )
    )
    profile_from_mapping(mapping, name)
    return mapping, choices


def _description(facts: dict[str, Any]) -> str:
    device = facts["hardware"] if facts["tp"] == 1 else f"{facts['tp']} x {facts['hardware']}"
    names = " + ".join(facts["models"][role]["name"] for role in ROLES)
    smoke = f"{SMOKE_TEST}: " if facts.get("grid") == QUICK_GRID else ""
    line = f"{smoke}{names} on {device}, {facts['dtype']}"
    return line if len(line) <= 120 else line[:117] + "..."


def _incomplete(facts: dict[str, Any], samples: list[Sample]) -> list[str]:
    """Return lines about a coarse grid, and about points that were planned and not reached."""
    lines = []
    if facts.get("grid") == QUICK_GRID:
        lines.append(f"{SMOKE_TEST}: the quick grid has two row counts, which identify neither a knee nor a staircase")
    lowered = facts.get("lowered", {})
    for role, (tokens, left_out) in lowered.items():
        lines.append(f"lower grid: {tokens} cached tokens of the {role} fit in the memory; {left_out} points left out")
    for role, every in facts.get("planned", {}).items():
        planned = every - lowered.get(role, (0, 0))[1]
        reached = len({each.key for each in samples if each.role == role})
        if reached < planned:
            lines.append(f"partial: {reached} of {planned} {role} points measured")
    return lines


def _model(facts: dict[str, Any], choice: FormChoice, samples: list[Sample], role: str) -> dict[str, Any]:
    about, on_gpu = facts["models"][role], facts["device"] == "cuda"
    mapping: dict[str, Any] = {
        "name": about["name"],
        "kv_bytes_per_token": about["kv_bytes_per_token"],
        "weights_bytes": about["weights_bytes"],
        **_widths(about, role),
        "overhead_s": 0.0 if on_gpu else overhead_s(usable(samples, role)),
    }
    fits = {name: judged.fitted for name, judged in choice.forms.items()}
    errors = {name: judged.errors for name, judged in choice.forms.items()}
    return mapping | fitted_keys(fits, errors, choice.samples)


def _widths(about: dict[str, Any], role: str) -> dict[str, int]:
    """Return what is known of a model beside its bytes: the weights of its layers, and of a target its sizes."""
    shape = next((each for each in BY_NAME.values() if each.name == about["name"]), None)
    if shape is None:
        return {name: about[name] for name in ("max_model_len",) if name in about}
    of_target = {"max_model_len": shape.max_model_len, **widths(shape)} if role == "target" else {}
    return {"nonembedding_bytes": shape.nonembedding_bytes, **{name: each for name, each in of_target.items() if each}}


def overhead_s(samples: list[Sample]) -> float:
    """Return the median host seconds around a small pass: laying out inputs, choosing and fetching tokens."""
    around = [each for each in samples if each.batched_tokens <= ENGINE_TOKENS] or samples
    return float(np.median([each.prepare_s + each.sample_s for each in around]))


def _knee(choice: FormChoice, facts: dict[str, Any]) -> dict[str, float | None]:
    """Return the fitted roofline's ridge, and compute over bandwidth as measured on the device."""
    form = choice.roofline.fitted.form
    return {
        "fitted": (form.knee_tokens or None) if isinstance(form, Roofline) else None,
        "compute_over_bandwidth": facts["knee_tokens"],
    }


def _provenance(path: Path, facts: dict[str, Any], samples: list[Sample]) -> dict[str, str]:
    days = sorted(each.measured_at for each in samples)
    clocks = [each.sm_clock_mhz for each in samples if np.isfinite(each.sm_clock_mhz)]
    return {
        "file": path.name,
        "origin": "measured by specsim profile latency",
        "licence": "Apache-2.0",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "measured": f"{days[0]} to {days[-1]}",
        "hardware": facts["hardware"],
        "driver": facts["driver"],
        "versions": f"torch {facts['torch']}, transformers {facts['transformers']}, specsim {facts['specsim']}",
        "attention": f"{facts['attention']}, within {max(facts['attention_error'].values()):.1g} of SDPA in float64",
        "sm_clock_mhz": f"{min(clocks):.0f} to {max(clocks):.0f}" if clocks else "not read",
        "ceilings": f"{facts['flops_per_s'] / 1e12:.4g} TFLOP/s, {facts['bytes_per_s'] / 1e9:.4g} GB/s",
    }


def _skipped(samples: list[Sample]) -> list[str]:
    skipped = [f"{each.role} {each.key} ({each.status})" for each in samples if each.status != "ok"]
    if not skipped:
        return []
    more = f" and {len(skipped) - SHOWN_SKIPPED} more" if len(skipped) > SHOWN_SKIPPED else ""
    return [f"skipped: {', '.join(skipped[:SHOWN_SKIPPED])}{more}"]


def _spread(samples: list[Sample]) -> list[str]:
    """Return a line where runs of a point lie wide apart."""
    middle, ninth = np.quantile([each.spread_s / each.median_s for each in samples if each.status == "ok"], [0.5, 0.9])
    said = f"{100 * middle:.0f}% of their median at the median point, {100 * ninth:.0f}% at the ninth decile"
    return [f"spread of a point's runs, as of a busy machine: the middle half takes {said}"] if ninth > BUSY else []


def check_places(profile: Path, samples: Iterable[Path]) -> None:
    """Refuse to write a profile over its own samples, or where no file can be created.

    Raises
    ------
    SpecsimError
        One line.
    """
    if profile.resolve() in {path.resolve() for path in samples}:
        raise SpecsimError(f"--out {profile}: is the samples file; expected another for the profile")
    probe = profile.with_name(f".{profile.name}.probe")
    try:
        profile.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise SpecsimError(f"{profile}: cannot be written: {error.strerror}") from None
    if profile.is_dir():
        raise SpecsimError(f"{profile}: is a folder; expected the file of a profile, such as mine.yaml")


UNFIT = 4
"""Exit code of a fit that was written and is not fit for use."""
NOTED = ("skipped: ", "partial: ", "lower grid: ", "spread of ")


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


def write_profile(places: Places, samples: list[Path]) -> int:
    """Fit, write profile and figures, and say how well it fits; return 0, or `UNFIT`.

    Raises
    ------
    SpecsimError
        When the samples are too few or a file cannot be written.
    """
    from profiler.latency.figures import draw

    name = places.profile.stem
    mapping, choices = profile_mapping(name, samples)
    write(places.profile, yaml_text(mapping, HEADING))
    figures = draw(choices, mapping, places.figures, name)
    say(*summary(mapping), places.profile, *samples, *figures)
    if (said := profile_from_mapping(mapping, name).unfit) is None:
        return 0
    refused = f"specsim refuses {places.profile} unless any_fit=true"
    say(f"{said}; {refused}; to measure anew delete {', '.join(map(str, samples))}, or give another --out")
    return UNFIT


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
    check_places(places.profile, arguments.samples)
    return write_profile(places, arguments.samples)
