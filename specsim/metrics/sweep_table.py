"""The table of a sweep: its axes, its columns, its notes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError, nearest

if TYPE_CHECKING:
    from pandas import DataFrame


FIRST = ("rps", "slo_scale", "ttft_scale")
"""Settings that come first as the x axis."""
BROUGHT = {
    "scheduler": ("acceptance", "drafter"),
    "drafter": ("acceptance",),
    "profile": ("acceptance", "drafter", "engine", "scheduler"),
    "trace": ("slo", "replicas"),
}
"""Settings that a choice may bring along (`suggests`); their differences count as differences of the choice."""


class SweepAxes(NamedTuple):
    """The axes of a sweep's figures.

    Attributes
    ----------
    x : the numeric setting of the x axis; None if none differs. line : the setting with a line for each value.
    rest : settings with a figure for each combination of values. along : settings that `line` brings along.
    along_x : settings with one value for each of `x`.
    """

    x: str | None
    line: str
    rest: tuple[str, ...]
    along: tuple[str, ...]
    along_x: tuple[str, ...] = ()


def axes_of(table: DataFrame, x: str | None = None, line: str | None = None) -> SweepAxes:
    """Return the axes of a table's figures: `x`, and a line for each value of `line`.

    By default `x` is the first of `FIRST` that differs, else the first other number; `line` is the scheduler, else the
    first setting that is no number, else another number.

    Raises
    ------
    SpecsimError
        When `x` or `line` is no setting, `x` is no number in every run, or there is no run.
    """
    if table.empty:
        raise SpecsimError("the sweep holds no run; expected runs to draw")
    for name, key in (("x", x), ("line", line)):
        if key is not None:
            check_setting(table, name, key)
    if x is not None and x == line:
        raise SpecsimError(f"x={x} and line={line}: expected two settings")
    if x is not None and not _numeric(table, x):
        raise SpecsimError(f"x={x}: expected a setting that is a number in every run")
    differ = differing(table)
    led = _led(table, differ)
    numbers = [each for each in differ if _numeric(table, each) and each != line and each not in led]
    x = x or next((each for each in (*FIRST, *numbers) if each in numbers), None)
    followers = following(table, [x] if x else [])
    left = [each for each in differ if each != x and each not in {*followers} & {*numbers}]
    words = sorted((each for each in left if each not in numbers), key=led.__contains__)
    line = line or next((each for each in ("scheduler", *words, *left) if each in left), "scheduler")
    along_x = [each for each in followers if each != line]
    rest = [each for each in beside(table, line) if each not in (x, *along_x)]
    along = [each for each in left if each not in (line, *rest, *along_x)]
    return SweepAxes(x, line, tuple(rest), tuple(along), tuple(along_x))


def following(table: DataFrame, of: Sequence[str]) -> list[str]:
    """Return the settings that differ and have one value for each value of a setting in `of`."""
    others = [key for key in differing(table) if key not in of]
    return [key for key in others if any(_determined(table, key, [each]) for each in of)]


def check_setting(table: DataFrame, name: str, key: object) -> None:
    """Refuse a `key` that is no setting of a table, or is the seed or ``slo_class``; `name` is the argument's.

    Raises
    ------
    SpecsimError
        One line with the settings in which the runs differ.
    """
    if key in (CLASS, SEED):
        raise SpecsimError(f"{name}={key}: every run holds all classes, means are over seeds; expected another setting")
    if key not in keys_of(table):
        raise SpecsimError(f"{name}={key!s:.60}: the runs do not differ in it{nearest(str(key), differing(table))}")


def beside(table: DataFrame, of: str) -> list[str]:
    """Return the settings that differ, except `of` and those that it brings along."""
    others = [key for key in differing(table) if key != of]
    led = _led(table, others)
    kept = [key for key in others if not brought(key, of) and key not in led]
    for key in sorted(others, key=led.__contains__):
        if key not in kept and not _determined(table, key, [of, *kept]):
            kept.append(key)
    return kept


def brought(key: str, of: str) -> bool:
    """Return whether a setting may differ because `of` does: it is below `of`, or in a group that `of` brings along."""
    head, own = key.partition(".")[0], of.partition(".")[0]
    return (head == own and key != own) or head in BROUGHT.get(own, ())


def _led(table: DataFrame, keys: Sequence[str]) -> set[str]:
    """Return those of the keys that another one brings along: they have one value for each of its values."""
    pairs = [(key, of) for of in keys if of in BROUGHT for key in keys if brought(key, of)]
    return {key for key, of in pairs if _determined(table, key, [of])}


def _numeric(table: DataFrame, key: str) -> bool:
    there = values_of(table, key)
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in there)
    return numbers and READ not in key and len(there) > 0


def _determined(table: DataFrame, key: str, by: Sequence[str]) -> bool:
    return bool(table.groupby(list(by), dropna=False)[key].nunique(dropna=False).max() == 1)


def line_named(table: DataFrame, line: str, against: Any) -> Any:
    """Return the value of `line` that `against` equals, as a value, as text or in short.

    Raises
    ------
    SpecsimError
        When no run has it.
    """
    if isinstance(against, Iterable) and not isinstance(against, str):
        raise SpecsimError(f"against={against!r:.60}: expected one value of {line}")
    there = values_of(table, line)
    short = short_names(there)
    for value in there:
        if against == value or str(against) in (str(value), word(value), short.get(value)):
            return value
    raise SpecsimError(f"against={against}: no run with this {line}{nearest(str(against), map(str, there))}")


def base_named(table: DataFrame, line: str, against: Any) -> Any:
    """Return `line_named` of the line that the differences of figures are from.

    Raises
    ------
    SpecsimError
        As `line_named`, and for runs that lack the setting.
    """
    base = line_named(table, line, against)
    if base is None:
        raise SpecsimError(f"against={against}: these runs have no {line}; expected a value that is set")
    return base


RUN, CLASS, POINT, VARIES, SEED = "run", "slo_class", "point", "varies_with_seed", "seed"
ALL = "all"
GROUPS = ("scheduler", "trace", "slo", "acceptance", "profile", "drafter", "engine", "router")
ALWAYS = (*GROUPS, "rps", "slo_scale", "ttft_scale", "requests", SEED, "replicas")
"""Settings that are columns even if they do not differ."""
HEADLINE = (
    "slo_attainment",
    "worst_class",
    "worst_class_attainment",
    "slo_goodput_tokens_per_s",
    "p99_ttft_s",
    "p99_e2el_s",
    "longest_pause_s",
    "load.makespan_ratio",
    "load.overloaded",
    "tpot_attainment",
    "mean_tpot_s",
    "mean_ttft_s",
    "mean_tokens_per_verification",
)
READ = ".read."
"""Part of a column's name: the checksum of what a run read, such as the file of a trace or a recording."""
CHECKSUM, CHECKSUM_CHARACTERS = re.compile("[0-9a-f]{64}"), 8
"""The form of a checksum, and how many of its characters stand in names and figures."""
CODE = "code"
"""The column with the checksum of specsim's code."""
ERROR = "error"
"""The column with the error line of a failed run; missing for other runs."""
NOT_MEASURED = ("schema_version", "window", "classes", "acceptance", "router")


class SweptRun(NamedTuple):
    """One run for the table.

    Attributes
    ----------
    name : of the run. settings : by dotted key. point : the same text for runs that differ only in their seed.
    varies : what the seed draws anew. metrics : the content of ``metrics.json``.
    error : the error line of a failed run, whose `point`, `varies` and `metrics` are None.
    """

    name: str
    settings: Mapping[str, Any]
    point: str | None
    varies: str | None
    metrics: Mapping[str, Any] | None
    error: str | None = None


def sweep_table(runs: Iterable[SweptRun]) -> DataFrame:
    """Return one row per run and SLO class, the class ``all`` included; after them one row per failed run.

    Columns in order: ``run``; `ALWAYS` and the other settings that differ; ``slo_class``; ``point``;
    ``varies_with_seed``; ``error`` if a run failed; every metric, `HEADLINE` first. A setting that the choice of its
    group fixes, or that repeats one above it, is no column. A setting that a run does not have is missing, as is null.
    """
    from pandas import DataFrame

    base: Mapping[str, Any] = {}
    differ: set[str] = set()
    names: list[str] = []
    settings: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    for place, run in enumerate(runs):
        base = base if place else dict(run.settings)
        told = {key: run.settings[key] for key in ALWAYS if key in run.settings}
        told |= {key: value for key, value in run.settings.items() if key not in base or base[key] != value}
        missing = {key: None for key in base if key not in run.settings}
        # A failed run has no checksums of what it read; that is no difference.
        differ |= told.keys() | (missing.keys() if run.error is None else set())
        told |= missing
        for name, measured in _rows(run.metrics):
            names.append(run.name)
            settings.append(told)
            ends.append({CLASS: name, POINT: run.point, VARIES: run.varies, ERROR: run.error})
            metrics.append(measured)
    keys = [*ALWAYS, *sorted(differ - set(ALWAYS))]
    measures = DataFrame(metrics)
    order = [*(each for each in HEADLINE if each in measures), *(each for each in measures if each not in HEADLINE)]
    columns: dict[str, list[Any]] = {RUN: names}
    columns |= {key: [told.get(key, base.get(key)) for told in settings] for key in keys}
    columns |= {key: [end[key] for end in ends] for key in (CLASS, POINT, VARIES, ERROR)}
    if not any(columns[ERROR]):
        del columns[ERROR]
    table = DataFrame(columns).join(measures[order])
    return table.drop(columns={*_fixed(table, keys), *_repeated(table, keys)})


def without_failures(table: DataFrame) -> DataFrame:
    """Return the rows of runs that did not fail, without the column `ERROR`."""
    if not hasattr(table, "columns"):
        raise SpecsimError(f"{type(table).__name__} is no table; expected the rows of a Sweep's table")
    return table[table[ERROR].isna()].drop(columns=ERROR) if ERROR in table else table


def keys_of(table: DataFrame) -> list[str]:
    """Return the columns of a table that are settings, ``slo_class`` and the seed included."""
    if POINT in table:
        return [str(each) for each in table.columns[: table.columns.get_loc(POINT)] if each != RUN]
    return [str(each) for each in table.columns if each not in (*HEADLINE, RUN, VARIES)]


def values_of(table: DataFrame, key: str) -> list[Any]:
    """Return the distinct values of a column in order, with None last if one is missing."""
    found = table[key].drop_duplicates()
    there = found.dropna().tolist()
    numbers = all(isinstance(each, int | float) for each in there)
    return [*sorted(there, key=None if numbers else str), *([None] if found.isna().any() else [])]


def word(value: Any) -> str:
    """Return a setting's value in words: a number without needless digits, ``none`` if a run has none."""
    if value is None or value != value:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(values: Iterable[Any]) -> dict[str, str]:
    """Return each text among the values in short: a path as its file's stem, with the folder where two stems are equal.

    A checksum is its first characters. Where these are equal, too, it is the text as given.
    """
    parts = {each: _parts(each) for each in values if isinstance(each, str)}
    found = {each: each for each in parts}
    for count in (2, 1):
        short = {each: "/".join(of[-count:]) for each, of in parts.items()}
        times = Counter(short.values())
        found |= {each: said for each, said in short.items() if times[said] == 1}
    return found


def _parts(value: str) -> tuple[str, ...]:
    if CHECKSUM.fullmatch(value):
        return (value[:CHECKSUM_CHARACTERS],)
    path = Path(value)
    return (*path.parts[:-1], path.stem) if "/" in value or path.suffix[1:].isalpha() else (value,)


def short_keys(keys: Collection[str]) -> dict[str, str]:
    """Return the last parts of each dotted key, as few as no other of the keys ends with."""
    found = {}
    for key in keys:
        parts = key.split(".")
        tails = (".".join(parts[place:]) for place in reversed(range(len(parts))))
        found[key] = next((each for each in tails if sum(f".{one}".endswith(f".{each}") for one in keys) == 1), key)
    return found


def short_labels(labels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return labels, settings by key, with `short_names` of the values of each key."""
    names = {key: short_names(each.get(key) for each in labels) for key in {key for each in labels for key in each}}
    return [
        {key: names[key][value] if isinstance(value, str) else value for key, value in each.items()} for each in labels
    ]


def with_short_names(table: DataFrame) -> DataFrame:
    """Return the table with `short_names` of the choices in each group and of checksums."""
    keys = [key for key in map(str, table) if key in GROUPS or READ in key]
    names = {key: short_names(table[key].unique()) for key in keys}
    differ = {key: of for key, of in names.items() if any(each != said for each, said in of.items())}
    return table.assign(**{key: table[key].map(lambda each, of=of: of.get(each, each)) for key, of in differ.items()})


def selecting(key: str) -> str:
    """Return the call of `Sweep.select` that chooses a value of a setting."""
    name = key.replace(".", "__")
    return f"select({name}=..)" if name.isidentifier() else f"select(**{{{key!r}: ..}})"


def rows_with(table: DataFrame, key: str, value: Any) -> DataFrame:
    """Return the rows with this value in a column; None stands for missing."""
    return table[table[key].isna() if value is None else table[key] == value]


def with_none(table: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return these columns with None for missing."""
    return table[[*keys]].astype(object).where(table[[*keys]].notna(), None)


def differing(table: DataFrame) -> list[str]:
    """Return the settings in which rows differ, without the seed and ``slo_class``."""
    return [key for key in keys_of(table) if key not in (SEED, CLASS) and table[key].nunique(dropna=False) > 1]


def _fixed(table: DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the keys that the choice of their group or cost model fixes, and the checksums that other settings fix."""
    fixed, measured_in = [], without_failures(table)
    for key in keys:
        head = key.partition(".")[0]
        if head == key or head not in table:
            continue
        own = [each for each in keys if each.partition(".")[0] == head and READ not in each] if READ in key else [head]
        # A failed run has no checksums of what it read.
        told_in = measured_in if READ in key else table
        if told_in.groupby(own, dropna=False)[key].nunique(dropna=False).max() == 1:
            fixed.append(key)
    return fixed


def _repeated(table: DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the keys of parts that in every row equal a key of the same name above them."""
    return [
        key
        for key in keys
        for above in keys
        if above != key
        and key.partition(".")[0] == above.partition(".")[0] != above
        and key.endswith(f".{above.partition('.')[2]}")
        and table[key].equals(table[above])
    ]


def _rows(metrics: Mapping[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each class with its metrics; its ``requests`` are called ``arrived``, as in the run's metrics."""
    if metrics is None:
        yield ALL, {}
        return
    block = metrics["specsim"]
    for name, part in block["classes"].items():
        yield name, _numbers({"arrived" if key == "requests" else key: value for key, value in part.items()})
    run = {key: value for key, value in block.items() if key not in NOT_MEASURED}
    yield ALL, {**_in_seconds({key: value for key, value in metrics.items() if key != "specsim"}), **_numbers(run)}


def _in_seconds(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of ``vllm bench serve``, milliseconds converted to seconds."""
    found = {}
    for key, value in metrics.items():
        if key.endswith("_ms"):
            key, value = f"{key.removesuffix('_ms')}_s", None if value is None else value / 1000
        found[key] = value
    return found


def _numbers(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the scalars of a block by dotted key; rejected requests are summed over reasons."""
    found: dict[str, Any] = {}
    for key, value in block.items():
        if key == "rejected" and isinstance(value, dict):
            found[prefix + key] = sum(value.values())
        elif isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{key}.")
        elif not isinstance(value, (list, tuple)):
            found[prefix + key] = value
    return found


EXTRAPOLATED, EAGER, UNDRAFTED, HARDLY = "extrapolated", "not captured", "without drafts", "hardly drafts"
COLUMNS = {
    EXTRAPOLATED: ("out_of_range_passes",),
    "OVERLOADED": ("load.overloaded",),
    "too short": ("load.too_short", "load.attainment_half_width"),
    "near saturation": ("load.saturated",),
    "not steady": ("load.steady",),
    EAGER: (),
    UNDRAFTED: (),
    HARDLY: (),
}
"""The kinds of notes (``KIND: reason``) that many runs may have, and the columns of a table that tell which runs."""
Names = Callable[[int], str]
"""Returns the name of a run by its place; an empty one where it needs none."""


def in_short(notes: Sequence[Sequence[str]], name: Names) -> list[str]:
    """Return the notes of several runs, each once; a kind in `COLUMNS` as a number of runs.

    A kind that one run has is said in full, with the `name` of the run.
    """
    said = [(place, *note.partition(": ")[::2], note) for place, each in enumerate(notes) for note in each]
    lines = list(dict.fromkeys(note for _, kind, _, note in said if kind not in COLUMNS))
    for kind, columns in COLUMNS.items():
        found = [(place, reason) for place, each, reason, _ in said if each == kind]
        if len(found) == 1:
            lines.append(": ".join(filter(None, (kind, name(found[0][0]), found[0][1]))))
        elif found and not columns:
            lines.append(f"{kind}: {len(found)} of {len(notes)} runs by their notes, such as {found[0][1]}")
        elif found:
            tell = f"column {columns[0]} tells" if len(columns) == 1 else f"columns {' and '.join(columns)} tell"
            count = f"{len(found)} of {len(notes)} runs"
            if (sizes := max(reason.partition(": ")[2] for _, reason in found)) and kind == EXTRAPOLATED:
                count += f", such as {sizes}"
            lines.append(f"{kind}: {count}; the table's {tell} which, the notes in each run's provenance why")
    return lines
