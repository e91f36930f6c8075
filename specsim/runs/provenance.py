"""Where a run comes from: machine, versions and the files behind it; kept beside the metrics, never inside them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version
from typing import Any

from specsim.latency.model import Profile
from specsim.metrics.why import ALONE, alone
from specsim.runs.prepare import Experiment
from specsim.workload.trace import TraceSource

PACKAGES = ("specsim", "numpy", "numba", "scipy", "pandas", "pyarrow", "simpy", "hydra-core")


def sources_of(experiment: Experiment) -> dict[str, Any]:
    """Return what `provenance.json` holds of all that makes a run's numbers beside its settings: code and files."""
    return {
        "code_sha256": experiment.code_sha256,
        "plugins": dict(experiment.plugins),
        "trace": _trace_facts(experiment.source),
        "recording_sha256": experiment.recording_sha256,
    }


def provenance_of(
    experiment: Experiment, notes: tuple[str, ...], started: datetime, loop_s: float, iterations: int
) -> dict[str, Any]:
    """Return what `provenance.json` holds of a run that began at `started` and whose event loop took `loop_s`."""
    first, *others = experiment.profiles
    return {
        "started": started.isoformat(timespec="seconds"),
        "loop_wall_s": loop_s,
        "iterations_per_wall_s": iterations / loop_s,
        "host": {
            "machine": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "versions": dict(versions()),
        **sources_of(experiment),
        "profile": _profile_facts(first),
        **({"other_profiles": [_profile_facts(each) for each in others]} if others else {}),
        ALONE: alone(experiment.profiles),
        "objects": {group: dict(said) for group, said in experiment.objects.items()},
        "notes": list(notes),
    }


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of `PACKAGES`."""
    return {name: version(name) for name in PACKAGES}


def _profile_facts(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "hardware": profile.hardware,
        "provenance": [dict(each) for each in profile.provenance],
    }


def _trace_facts(source: TraceSource) -> dict[str, Any]:
    return {
        "name": source.name,
        "origin": source.origin,
        "file": source.file,
        "sha256": source.sha256,
        "licence": source.licence,
        "requests": source.holds,
    }
