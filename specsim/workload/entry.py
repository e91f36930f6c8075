"""The keys of ``conf/trace/NAME.yaml``, checked: each stands there, none is unknown, types fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from specsim.errors import SpecsimError, nearest
from specsim.workload.synthetic import Lengths

Entry = Mapping[str, Any]

COMMON = ("name", "description", "kind")
PUBLISHED = ("file", "sha256", "url", "licence", "ships", "ships_as", "twin", "window")
KEYS: dict[str, tuple[str, ...]] = {
    "azure_csv": PUBLISHED,
    "mooncake_jsonl": (*PUBLISHED, "tick_s"),
    "adaserve": (*PUBLISHED, "workload", "point", "points", "baselines_s"),
    "file": ("path", "window"),
    "synthetic": ("process", "rps", "n", "prompt_tokens", "output_tokens"),
}
PROCESSES: dict[str, tuple[str, ...]] = {
    "poisson": (),
    "gamma": ("cv",),
    "on_off": ("burst_requests", "on_share", "off_rate_ratio"),
}
LENGTHS: dict[str, tuple[str, ...]] = {
    "fixed": ("mean",),
    "uniform": ("low", "high"),
    "lognormal": ("mean", "cv", "low", "high"),
}


MOST = 10**9


@dataclass(frozen=True, slots=True)
class Published:
    """A file at its official home: name, SHA-256 of its unpacked content, address."""

    file: str
    sha256: str
    url: str


def check_keys(entry: Entry) -> None:
    """Raise when a key is missing, unknown, or its kind (or process) is."""
    kind = choice(entry, "kind", KEYS)
    known = [*COMMON, *KEYS[kind]]
    if kind == "synthetic":
        known += PROCESSES[choice(entry, "process", PROCESSES)]
    for key in entry:
        if key not in known:
            raise SpecsimError(f"trace.{key}: no such key of trace {entry.get('name')!r}{nearest(str(key), known)}")
    for key in known:
        if key not in entry or entry[key] == "???":
            raise SpecsimError(f"trace.{key}: trace {entry.get('name')!r} needs it and it is not given")


def choice(entry: Entry, key: str, valid: Mapping[str, Any]) -> str:
    """Return the name under a key, one of ``valid``."""
    value = entry.get(key)
    if not isinstance(value, str) or value not in valid:
        raise SpecsimError(f"trace.{key}={value!r}: no such {key.split('.')[-1]}{nearest(str(value), valid)}")
    return value


def text(entry: Entry, key: str) -> str:
    """Return the text under a key."""
    value = entry[key]
    if not isinstance(value, str) or not value:
        raise SpecsimError(f"trace.{key}={value!r}: expected text")
    return value


def flag(entry: Entry, key: str) -> bool:
    """Return the truth value under a key."""
    value = entry[key]
    if not isinstance(value, bool):
        raise SpecsimError(f"trace.{key}={value!r}: expected true or false")
    return value


def number(entry: Entry, key: str, low: float = 0.0, high: float = inf, where: str = "trace") -> float:
    """Return the number under a key, above ``low`` and at most ``high`` (below it where that is 1)."""
    value = entry[key]
    good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not good or not low < value <= high:
        bounds = f"above {low:g}" + (f" and at most {high:g}" if high < inf else "")
        raise SpecsimError(f"{where}.{key}={value!r}: expected a number {bounds}")
    return float(value)


def whole(entry: Entry, key: str, where: str = "trace") -> int:
    """Return the whole number under a key, at least 1."""
    value = entry[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise SpecsimError(f"{where}.{key}={value!r}: expected a whole number between 1 and {MOST}")
    return value


def window(entry: Entry) -> tuple[float, float] | None:
    """Return (start_s, stop_s) or None."""
    value = entry["window"]
    if value is None:
        return None
    pair = list(value) if isinstance(value, list | tuple) else []
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in pair)
    if len(pair) != 2 or not numbers or not 0 <= pair[0] < pair[1]:
        raise SpecsimError(f"trace.window={value!r}: expected [start_s, stop_s] with 0 <= start_s < stop_s")
    return float(pair[0]), float(pair[1])


def lengths(entry: Entry, key: str) -> Lengths:
    """Return the distribution under ``prompt_tokens`` or ``output_tokens``; useless parts must be null."""
    where = f"trace.{key}"
    spec = entry[key]
    if not isinstance(spec, Mapping):
        raise SpecsimError(f"{where}={spec!r}: expected distribution, mean, cv, low and high")
    parts = ("distribution", "mean", "cv", "low", "high")
    for part in spec:
        if part not in parts:
            raise SpecsimError(f"{where}.{part}: no such key{nearest(str(part), parts)}")
    distribution = spec.get("distribution")
    if not isinstance(distribution, str) or distribution not in LENGTHS:
        name = nearest(str(distribution), LENGTHS)
        raise SpecsimError(f"{where}.distribution={distribution!r}: no such distribution{name}")
    wanted = LENGTHS[distribution]
    for part in parts[1:]:
        if part not in wanted and spec.get(part) is not None:
            raise SpecsimError(f"{where}.{part}={spec[part]!r} changes nothing for {distribution!r}; set it to null")
        if part in wanted and spec.get(part) is None:
            raise SpecsimError(f"{where}.{part}: {distribution!r} needs it and it is not given")
    return _lengths(spec, distribution, where)


def _lengths(spec: Entry, distribution: str, where: str) -> Lengths:
    low = whole(spec, "low", where) if spec.get("low") is not None else None
    high = whole(spec, "high", where) if spec.get("high") is not None else None
    if low is not None and high is not None and low > high:
        raise SpecsimError(f"{where}.low={low} is above {where}.high={high}")
    if distribution == "fixed":
        return Lengths("fixed", mean=whole(spec, "mean", where))
    if distribution == "uniform":
        return Lengths("uniform", low=low, high=high)
    return Lengths(
        "lognormal",
        mean=number(spec, "mean", high=MOST, where=where),
        cv=number(spec, "cv", high=100, where=where),
        low=low,
        high=high,
    )


def published(entry: Entry) -> tuple[Published, ...]:
    """Return the files of a published trace: one, or one for each point of an AdaServe figure."""
    if entry["kind"] != "adaserve":
        return (Published(text(entry, "file"), text(entry, "sha256"), text(entry, "url")),)
    base = text(entry, "url")
    _check_points(entry)
    return tuple(Published(p["file"], p["sha256"], base + p["file"]) for p in entry["points"])


def point_of(entry: Entry) -> tuple[float, Published]:
    """Return the chosen point of an AdaServe figure and its file; a wrong one names the nearest."""
    _check_points(entry)
    valid = {float(p["point"]): place for place, p in enumerate(entry["points"])}
    value = entry["point"]
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or float(value) not in valid:
        close = f"; nearest {min(valid, key=lambda v: abs(v - value)):g}" if good else ""
        raise SpecsimError(f"trace.point={value!r}: expected one of {', '.join(f'{v:g}' for v in valid)}{close}")
    return float(value), published(entry)[valid[float(value)]]


def _check_points(entry: Entry) -> None:
    baselines = entry["baselines_s"]
    if not isinstance(baselines, Mapping):
        raise SpecsimError(f"trace.baselines_s={baselines!r}: expected seconds by the name of a target model")
    for model in baselines:
        number(baselines, model, where="trace.baselines_s")
    points = entry["points"]
    keys = {"point", "file", "sha256"}
    if not isinstance(points, list) or not points or not all(isinstance(p, Mapping) and set(p) == keys for p in points):
        raise SpecsimError(f"trace.points={points!r}: expected a list of point, file and sha256")
