"""The checked keys of ``conf/trace/NAME.yaml``: none is missing or unknown, and types fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from specsim.files.checked_mapping import MOST, CheckedMapping, is_number
from specsim.workload.columns import ADASERVE_CLASSES, UNITS, Unit
from specsim.workload.formats import OPTIONAL, ROLES, refuse_others
from specsim.workload.sessions import TURNS, TurnPrompts

Entry = Mapping[str, Any]
LengthDistribution = Literal["fixed", "uniform", "lognormal"]

COMMON = ("name", "description", "kind", "resample")
PUBLISHED = ("file", "sha256", "url", "licence", "ships", "ships_as", "surrogate", "window")
KEYS: dict[str, tuple[str, ...]] = {
    "azure_csv": PUBLISHED,
    "mooncake_jsonl": (*PUBLISHED, "time_unit", "tick_s"),
    "adaserve": (*PUBLISHED, "workload", "point", "points", "baselines_s", "mean_output_tokens"),
    "arrivals_csv": (*PUBLISHED, "prompt_tokens", "output_tokens"),
    "azure_classes": (*PUBLISHED, "classes"),
    "file": ("path", "window", "time_unit", "tick_s"),
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


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts; ``low`` and ``high`` bound it, both included.

    Attributes
    ----------
    distribution : ``fixed`` (mean), ``uniform`` (low, high) or ``lognormal`` (mean and cv before the bounds)
    mean : tokens
    cv : standard deviation / mean
    low, high : tokens
    """

    distribution: LengthDistribution
    mean: float | None = None
    cv: float | None = None
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A file at its official source: name, SHA-256 of the unpacked content, address."""

    file: str
    sha256: str
    url: str


def checked(entry: Entry, source: str = "") -> CheckedMapping:
    """Return the entry as a mapping; raise if a key is missing or unknown, or its kind or process is unknown."""
    given = {key: value for key, value in entry.items() if value != "???"}
    name = given.get("path", given.get("name"))
    node = CheckedMapping(source if name is None and source else f"trace={name}", "trace", given)
    refuse_others(node.source, tuple(f"{key}:" for key in given))
    kind = node.choice("kind", KEYS)
    more = PROCESSES[node.choice("process", PROCESSES)] if kind == "synthetic" else ()
    node.only((*COMMON, *KEYS[kind], *more), ("suggests", "columns", "turns") if kind == "file" else ("suggests",))
    return node


def window(node: CheckedMapping) -> tuple[float, float] | None:
    """Return (start_s, stop_s) or None."""
    expected = "[start_s, stop_s], finite, with 0 <= start_s < stop_s"
    return node.span("window", expected, least=0) if node.given("window") else None


def resample(node: CheckedMapping) -> float | None:
    """Return the seconds of a block for resampling; None: not resampled."""
    return node.number("resample", above=0) if node.given("resample") else None


class How(NamedTuple):
    """How a table of requests is read.

    Attributes
    ----------
    time_unit : of arrivals that are numbers; None: the format's, if that makes sense.
    tick_s : seconds over which requests of one stamp are spread evenly; None: they arrive together.
    called : pairs of specsim's own name of a column and the table's.
    turns : whether prompts of turns are all that is sent, or what a turn adds; None: told by the content.
    unit_open : whether a unit that the content does not tell is asked for later, in `TraceSource.unit_asked`.
    """

    time_unit: Unit | None = None
    tick_s: float | None = None
    called: tuple[tuple[str, str], ...] = ()
    turns: TurnPrompts | None = None
    unit_open: bool = False


def how(node: CheckedMapping) -> How:
    """Return how a file is read."""
    called: tuple[tuple[str, str], ...] = ()
    if node.given("columns"):
        names = node.child("columns", "names of columns by specsim's own: prompt_tokens: input_toks")
        names.only((), (*ROLES, *OPTIONAL))
        given = (role for role in sorted(names.values) if names.given(role))
        called = tuple((role, names.text(role, "the name of a column")) for role in given)
    return How(
        cast(Unit, node.choice("time_unit", UNITS)) if node.given("time_unit") else None,
        node.number("tick_s", above=0) if node.given("tick_s") else None,
        called,
        cast(TurnPrompts, node.choice("turns", TURNS)) if node.given("turns") else None,
    )


def lengths(node: CheckedMapping, key: str) -> Lengths:
    """Return the distribution under ``prompt_tokens`` or ``output_tokens``; keys that it does not use must be null.

    A whole number is the length of each request.
    """
    if is_number(node.values.get(key)):
        return Lengths("fixed", mean=node.whole(key))
    parts = ("mean", "cv", "low", "high")
    spec = node.child(key, "distribution, mean, cv, low and high, or a whole number")
    spec.only(("distribution",), parts)
    distribution = spec.choice("distribution", LENGTHS)
    for part in parts:
        needed = part in LENGTHS[distribution]
        if spec.given(part) and not needed:
            spec.refuse(part, f"{spec.values[part]!r} changes nothing for {distribution!r}; set it to null")
        if needed and not spec.given(part):
            spec.refuse(part, f"{distribution!r} needs it and it is not given")
    low, high = (spec.whole(part) if spec.given(part) else None for part in ("low", "high"))
    if low is not None and high is not None and low > high:
        spec.fail("low", f"at most high, {high}")
    if distribution == "fixed":
        return Lengths("fixed", mean=spec.whole("mean"))
    if distribution == "uniform":
        return Lengths("uniform", low=low, high=high)
    mean, cv = spec.number("mean", above=0, most=MOST), spec.number("cv", above=0, most=100)
    return Lengths("lognormal", mean, cv, low, high)


def point_of(node: CheckedMapping) -> tuple[float, Published]:
    """Return the chosen point of an AdaServe figure and its file; the error for a wrong point names the nearest."""
    value, points = node.values["point"], points_of(node)
    if is_number(value) and value in points:
        return float(value), points[value]
    close = f"; nearest {min(points, key=lambda each: abs(each - value)):g}" if is_number(value) else ""
    node.fail("point", f"one of {', '.join(f'{each:g}' for each in points)}{close}")


def mean_output_tokens(node: CheckedMapping) -> dict[str, float]:
    """Return the mean output of each class of AdaServe whose outputs end before the published cap."""
    if not node.given("mean_output_tokens"):
        return {}
    means = node.child("mean_output_tokens", f"tokens by class: {', '.join(ADASERVE_CLASSES)}")
    means.only((), ADASERVE_CLASSES)
    return {name: means.number(name, least=1, most=MOST) for name in means.values}


def baselines_s(node: CheckedMapping) -> dict[str, float]:
    """Return the baseline latencies that a trace states, seconds by the name of a target model."""
    if "baselines_s" not in node.values:
        return {}
    stated = node.child("baselines_s", "seconds by the name of a target model")
    return {model: stated.number(model, above=0) for model in stated.values}


def points_of(node: CheckedMapping) -> dict[float, Published]:
    """Return the file of each point of an AdaServe figure."""
    base, found = node.text("url"), {}
    for each in node.items("points", "mappings of point, file and sha256"):
        each.only(("point", "file", "sha256"))
        file = each.file_name("file")
        found[each.number("point", above=0)] = Published(file, each.text("sha256"), base + file)
    return found
