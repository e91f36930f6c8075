"""Rows of measured.csv, each with what it compares, or the reason why it is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml
from specsim.workload.published import DATA_VARIABLE, data_folders

if TYPE_CHECKING:
    from pandas import DataFrame, Series

STUDY: Mapping[str, Any] = read_yaml(Path(__file__).with_name("study.yaml"))
FILE = Path("speculation/measured.csv")
THROUGHPUT, TPOT, TTFT, E2E = "throughput", "TPOT", "TTFT", "E2E"
QUANTITIES = {
    "speed-up over no speculation": THROUGHPUT,
    "output tok/s": THROUGHPUT,
    "output tok/s/GPU": THROUGHPUT,
    "output tok/s, ratio of two drafters": THROUGHPUT,
    "throughput ratio": THROUGHPUT,
    "total tok/s": THROUGHPUT,
    "tok/s/user": TPOT,
    "TPOT ms": TPOT,
    "TPOT p50 ms": TPOT,
    "ITL mean ms": TPOT,
    "TTFT p50 s": TTFT,
    "request latency p50 s": E2E,
}
"""Of each metric that is compared, what it measures."""
OPEN, CLOSED = "open loop", "closed loop"
LENGTH_ALONE = ("acceptance", "acceptance length", "acceptance length incl. bonus")


class PublishedTree(NamedTuple):
    """The drafts of a request: a chain of `steps` tokens, or SGLang's tree of `tokens`, root included."""

    steps: int
    topk: int
    tokens: int

    def __str__(self) -> str:
        return f"chain {self.steps}" if self.topk == 1 else f"tree {self.steps}-{self.topk}-{self.tokens}"


class Side(NamedTuple):
    """A drafter, by the key of study.yaml, its shape, and the length that the source states."""

    drafter: str
    shape: PublishedTree
    length: float | None


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row that is compared: `against` is None for no speculation. Measured values are None where not stated."""

    line: int
    source: str
    version: str
    target: str
    drafter: str
    hardware: str
    gpus: int
    dataset: str
    lengths: tuple[float, float]
    lengths_cv: float
    kind: str
    load: float
    metric: str
    quantity: str
    side: Side
    against: Side | None
    rate: float | None
    value_with: float | None
    value_without: float | None
    speedup: float | None

    @property
    def series(self) -> tuple[object, ...]:
        """Rows of one series differ in their load alone; those of an open loop in the metric, too."""
        quantity = OPEN if self.kind == OPEN else self.quantity
        where = (self.source, self.version, self.target, self.hardware, self.dataset, self.kind)
        return (*where, quantity, self.drafter, self.side.shape, self.against)

    def at(self, load: float) -> PublishedRow:
        """Return a point of the series at another load, of no line of the file."""
        nothing: dict[str, Any] = dict.fromkeys(("value_with", "value_without", "speedup"))
        return replace(self, line=0, load=load, **nothing)

    def told(self) -> dict[str, Any]:
        """Return what is kept of it."""
        shape, against = self.side.shape, self.against
        return {
            **{key: getattr(self, key) for key in ("line", "source", "version", "target", "drafter", "hardware")},
            **{key: getattr(self, key) for key in ("gpus", "dataset", "kind", "load", "metric", "quantity")},
            "shape": str(shape) + (f" over {against.drafter} {against.shape}" if against else ""),
            "steps": shape.steps,
            "nodes": shape.tokens,
            "tree": shape.topk > 1,
            "experts": self.experts,
            "ratio": against is not None,
            "measured_with": self.value_with,
            "measured_without": self.value_without,
            "measured": self.speedup,
        }

    @property
    def fitted(self) -> bool:
        """Whether an engine file was fitted to it."""
        if self.side.shape.topk > 1:
            return False
        said = STUDY["fitted_chains"]
        return any(all(str(getattr(self, key)).startswith(text) for key, text in each.items()) for each in said)

    @property
    def experts(self) -> bool:
        """Whether the target is a mixture of experts."""
        return bool(STUDY["targets"][self.target].get("experts"))


def data_file() -> Path:
    """Return measured.csv below $SPECSIM_DATA.

    Raises
    ------
    SpecsimError
        When no folder has it.
    """
    for folder in data_folders():
        if (folder / FILE).is_file():
            return folder / FILE
    raise SpecsimError(f"{DATA_VARIABLE}: no folder of it has {FILE}")


def measured() -> DataFrame:
    """Return the file's rows; the index is the line of the file."""
    from pandas import read_csv

    table = read_csv(data_file())
    table.index += 2
    return table


def rows(table: DataFrame) -> tuple[list[PublishedRow], dict[int, str]]:
    """Return the rows that are compared, and by line why others are not."""
    found, reasons = [], {}
    for line, given in table.iterrows():
        reason = _reason(given)
        if reason is None:
            row = _row(int(str(line)), given, table)
            reason = None if row.against is None or row.against.length else "acceptance: not stated"
        if reason is None:
            found.append(row)
        else:
            reasons[int(str(line))] = reason
    stated = {row.series for row in found if row.side.length or row.rate}
    solving = {row.series for row in found if row.load == 1 and row.speedup is not None}
    further = {row.series for row in found if row.load > 1}
    for row in found:
        if row.series not in stated | solving:
            reasons[row.line] = "acceptance: neither stated nor measured at batch 1"
        elif row.series not in stated | further:
            reasons[row.line] = "acceptance: not stated, and batch 1, which would give it, is all that is measured"
    return [_with_length(row, found) for row in found if row.line not in reasons], reasons


def _with_length(row: PublishedRow, found: list[PublishedRow]) -> PublishedRow:
    """Return a row with the mean of the lengths that its series states, where it has none itself."""
    if row.side.length or row.rate:
        return row
    stated = [each.side.length for each in found if each.series == row.series and each.side.length]
    return replace(row, side=row.side._replace(length=sum(stated) / len(stated))) if stated else row


def _reason(given: Series[Any]) -> str | None:
    """Return why a row cannot be compared, the first that applies."""
    said = {key: str(given[key]) for key in ("metric", "hardware", "target", "drafter", "note")}
    if said["metric"] in LENGTH_ALONE:
        return "metric: acceptance alone"
    if said["metric"] not in QUANTITIES:
        return f"metric: {said['metric']}"
    if said["hardware"] not in STUDY["gpus"]:
        return f"GPU: {'not stated' if said['hardware'] == 'nan' else said['hardware']}"
    if said["target"] not in STUDY["targets"]:
        why = _key("not_composed", said["target"])
        return f"target{', ' + STUDY['not_composed'][why] if why else ''}: {said['target']}"
    if _key("drafters", _drafters(said["drafter"])[0]) is None:
        return f"drafter: {said['drafter']}"
    if _shapes(_shape_of(given), _drafters(said["drafter"])[0])[0] is None:
        return f"shape: {given['k_or_tree']}"
    numbers = given[["value_with", "value_without", "speedup"]]
    return "metric: no baseline" if numbers[["value_without", "speedup"]].isna().all() else None


def _drafters(said: str) -> tuple[str, str | None]:
    """Return the drafter of a row, and the one that it is compared with."""
    first, *second = re.sub(r" \(best k\)", "", said).split(" against ")
    return first, second[0] if second else None


def _shape_of(given: Series[Any]) -> str:
    """Return the shape that a row states, else that of its source."""
    return str(about("sources", str(given["source"])).get("shape", given["k_or_tree"]))


def _shapes(said: str, drafter: str) -> tuple[PublishedTree | None, PublishedTree | None]:
    if said.startswith("best ("):
        return _chain(int(dict(re.findall(r"([\w-]*EAGLE[\w-]*) (\d+)", said))[drafter])), None
    if both := re.fullmatch(r"(\d+) against (\d+)", said):
        return _chain(int(both[1])), _chain(int(both[2]))
    if chain := re.fullmatch(r"(?:chain )?(\d+)", said):
        return _chain(int(chain[1])), None
    if tree := re.fullmatch(r"tree depth (\d+) branching (\d+) \((\d+) tokens\)", said):
        return PublishedTree(*map(int, tree.groups())), None
    if tree := re.fullmatch(r"steps-topk-tokens (\d+)-(\d+)-(\d+)", said):
        return PublishedTree(*map(int, tree.groups())), None
    return None, None


def _chain(tokens: int) -> PublishedTree:
    return PublishedTree(tokens, 1, tokens + 1)


def _key(table: str, name: str) -> str | None:
    """Return the longest key of study.yaml that a name begins with."""
    return max((key for key in STUDY[table] if name.startswith(key)), key=len, default=None)


def about(table: str, name: str) -> Mapping[str, Any]:
    """Return what study.yaml says under the longest key that a name begins with; nothing without one."""
    key = _key(table, name)
    said: Mapping[str, Any] = {} if key is None else STUDY[table][key]
    return said


def _row(line: int, given: Series[Any], table: DataFrame) -> PublishedRow:
    first, second = _drafters(str(given["drafter"]))
    shape, other = _shapes(_shape_of(given), first)
    assert shape is not None
    hardware = str(given["hardware"])
    lengths, cv = _lengths(given)
    rate = re.match(r">?(\.\d+)", str(given["acceptance_per_position"]))
    return PublishedRow(
        line=line,
        source=str(given["source"]),
        version=str(given["engine_version"]),
        target=str(given["target"]),
        drafter=str(given["drafter"]),
        hardware=hardware,
        gpus=int(re.match(r"\d+", str(given["tp"]))[0]) if str(given["tp"]) != "nan" else 1,  # type: ignore[index]
        dataset="" if str(given["dataset"]) == "nan" else str(given["dataset"]),
        lengths=lengths,
        lengths_cv=cv,
        kind=_kind(given),
        load=float(given["load"]),
        metric=str(given["metric"]),
        quantity=QUANTITIES[str(given["metric"])],
        side=_side(given, first, shape, table),
        against=None if second is None or other is None else _side(given, second, other, table),
        rate=float(rate[1]) if rate else None,
        value_with=_number(given["value_with"]),
        value_without=_number(given["value_without"]),
        speedup=_number(given["speedup"]),
    )


def _kind(given: Series[Any]) -> str:
    if str(given["load_kind"]).startswith("QPS"):
        return OPEN
    return CLOSED


def _side(given: Series[Any], drafter: str, shape: PublishedTree, table: DataFrame) -> Side:
    """Return a drafter with its length: the row's own, or what the same source states of it elsewhere."""
    key = _key("drafters", drafter)
    assert key is not None
    own = _number(given["acceptance_length"])
    if own is None:
        source, dataset = str(given["source"]).split(" fig ")[0], str(given["dataset"])
        recorded = about("recorded", source)
        if dataset in recorded.get("datasets", {}):
            source, dataset = recorded["source"], recorded["datasets"][dataset]
            drafter = recorded["drafters"].get(drafter, drafter)
        same = table[
            (table["metric"] == "acceptance length")
            & table["source"].str.startswith(source)
            & (table["target"] == given["target"])
            & (table["drafter"] == drafter)
            & (table["k_or_tree"] == str(shape.steps))
            & (table["dataset"] == dataset)
        ]["acceptance_length"]
        own = float(same.iloc[0]) if len(same) else None
    return Side(key, shape, own)


def _lengths(given: Series[Any]) -> tuple[tuple[float, float], float]:
    """Return mean prompt and output tokens, and how much they vary."""
    stated = re.match(r"(\d+)(?: \(.*?\))? ?/ ?(\d+)", str(given["isl_osl"]))
    if stated:
        varied = "sd" in str(given["isl_osl"])
        return (float(stated[1]), float(stated[2])), 0.5 if varied else 0.0
    prompt, output = STUDY["lengths"][str(given["dataset"])]
    how = about("engines", str(given["engine_version"]))
    return (float(prompt), float(output)), float(how.get("lengths_cv", STUDY["lengths_cv"]))


def _number(value: object) -> float | None:
    number = float(str(value))
    return None if number != number else number
