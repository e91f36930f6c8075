"""Raw samples as one Parquet file, rewritten every few points, so that a sweep continues where it stopped."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.latency.points import DRAFT_KINDS, TARGET_KINDS, GridPoint
from specsim.errors import SpecsimError, first_line, say
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 3
WITHOUT_MEANS = 2
"""The format of files that were written before a sample held the mean of its runs."""
METADATA = b"specsim"
IDENTITY = (
    "target",
    "draft",
    "tp",
    "link",
    "device",
    "dtype",
    "attention",
    "passes",
    "hardware",
    "torch",
    "transformers",
)
"""Facts that all samples of a file share."""
BEFORE_IT_WAS_KEPT = {"passes": "transformers"}
"""Values of facts in files that are older than the fact."""
MACHINE = ("driver", "host")
"""Facts in which samples of a file may differ: each value is recorded."""
MEASURED = ("flops_per_s", "bytes_per_s", "knee_tokens", "models", "attention_error")
"""Facts that a sweep finds out, and does not find out again when it goes on."""
JOINED = "; "
WRITE_EVERY_S = 2.0
NAN = float("nan")
NO_SAMPLES = "holds no latency samples; expected a file of `specsim profile latency` (others: docs/your-profile.md)"
KINDS = {"target": TARGET_KINDS, "draft": DRAFT_KINDS}
FACTS = [
    *("target", "draft", "device", "dtype", "attention", "hardware", "driver", "torch", "transformers", "specsim"),
    *("tp", "memory_bytes", "flops_per_s", "bytes_per_s", "knee_tokens", "assumptions"),
    *(f"models.{role}.{key}" for role in KINDS for key in ("name", "kv_bytes_per_token", "weights_bytes")),
    *(f"attention_error.{role}" for role in KINDS),
]
"""Metadata of a finished sweep, by dotted keys."""
ABOVE_0, LEAST_0 = (5e-324, "above 0"), (0.0, "of 0 or more")
NUMBERS = {
    **dict.fromkeys(("median_s", "batched_tokens", "captured_tokens", "logit_tokens"), ABOVE_0),
    **dict.fromkeys(("prepare_s", "sample_s", "all_reduce_s", "context_tokens", "attention_pairs"), LEAST_0),
}
"""Least values of the numbers of a measured sample, and how they are said."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One point timed in one mode; `status` is ok, or why the point was skipped (its numbers are then NaN).

    `role` is target or draft, `mode` graph or eager. Samples of one `shape` are held out together. `captured_tokens`
    are the batched tokens with the padding to a captured size. `all_reduce_s` is modelled, never measured. Clocks are
    NaN if they cannot be read, `mean_s` in older files, and `host_s`, the host's time to launch a pass, in newer ones.
    """

    role: str
    kind: str
    key: str
    shape: str
    mode: str
    status: str
    requests: int
    context_tokens: int
    batched_tokens: int
    attention_pairs: int
    logit_tokens: int
    captured_tokens: int
    median_s: float
    mean_s: float
    least_s: float
    spread_s: float
    runs: int
    host_s: float
    prepare_s: float
    sample_s: float
    all_reduce_s: float
    sm_clock_mhz: float
    memory_clock_mhz: float
    measured_at: str

    @property
    def name(self) -> tuple[str, str, str]:
        """Role, key and mode, which identify a measurement."""
        return self.role, self.key, self.mode


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a pass over its runs: median, mean, minimum, and width of the middle half."""

    median_s: float
    mean_s: float
    least_s: float
    spread_s: float
    runs: int

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        """Summarise runs."""
        low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        return cls(float(middle), float(np.mean(seconds)), min(seconds), float(high - low), len(seconds))


def sample_of(role: str, point: GridPoint, mode: str, status: str, timing: Timing, **more: Any) -> Sample:
    """Return the sample of a point timed so, now; `more` are its other columns, by default of a pass as it is."""
    work = point.work()
    columns: dict[str, Any] = {
        "role": role,
        "kind": point.kind,
        "key": point.key,
        "shape": point.shape,
        "mode": mode,
        "status": status,
        "requests": work.rows,
        "context_tokens": work.context_tokens,
        "batched_tokens": work.batched_tokens,
        "attention_pairs": work.attention_pairs,
        "logit_tokens": work.logit_tokens,
        "captured_tokens": work.batched_tokens,
        **asdict(timing),
        **dict.fromkeys(("prepare_s", "sample_s", "all_reduce_s"), 0.0),
        **dict.fromkeys(("host_s", "sm_clock_mhz", "memory_clock_mhz"), NAN),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Sample(**(columns | more))


class SampleFile:
    """The samples of one sweep and the facts of their pair and hardware; the file begins with the first sample.

    Raises
    ------
    SpecsimError
        When the file is of another pair, hardware or version, or cannot be read or written.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.facts = dict(facts)
        self.samples: list[Sample] = []
        self._clock = clock
        self._written_at = clock()
        if path.exists():
            known, self.samples = read_samples(path)
            if self.samples:
                check_same(path, known, self.facts)
                told = {key: known[key] for key in MEASURED if key in known}
                self.facts |= told | machines(path, known, self.facts)

    @property
    def names(self) -> set[tuple[str, str, str]]:
        """The names of all points measured or skipped."""
        return {sample.name for sample in self.samples}

    def add(self, sample: Sample) -> None:
        """Add a sample; it is written when the last write is two seconds old, else with a later one."""
        self.samples.append(sample)
        if self._clock() - self._written_at > WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Replace the file in one step; without samples leave it as it is."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.samples:
            return
        told = {METADATA: json.dumps({"format": FORMAT, **self.facts}, sort_keys=True).encode()}
        rows = [asdict(sample) for sample in self.samples]
        with in_one_step(self.path) as partial, partial.open("wb") as raw:
            pq.write_table(pa.Table.from_pylist(rows, _schema().with_metadata(told)), raw, compression="zstd")
        self._written_at = self._clock()


def check_same(path: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse samples of another pair, hardware or version.

    Raises
    ------
    SpecsimError
        Naming the first difference.
    """
    for key in IDENTITY:
        was, is_ = (facts.get(key, BEFORE_IT_WAS_KEPT.get(key)) for facts in (known, wanted))
        if was != is_:
            raise SpecsimError(
                f"{path}: holds samples of {key} {was!r}, not {is_!r}; expected another --samples file, or none"
            )


def machines(path: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return driver and host of both, each value once; where they differ, say so in a line on standard error."""
    joined: dict[str, str] = {}
    for key in MACHINE:
        before, now = (facts[key].split(JOINED) if facts.get(key) else [] for facts in (known, wanted))
        new = [each for each in now if each not in before]
        if before and new:
            said = f"samples of {key} {JOINED.join(before)!r} are joined by those of {new[0]!r}"
            say(f"note: {path}: {said}", error=True)
        if before or new:
            joined[key] = JOINED.join([*before, *new])
    return joined


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    return pa.schema([(each.name, types[str(each.type)]) for each in fields(Sample)])


def read_samples(path: Path) -> tuple[dict[str, Any], list[Sample]]:
    """Return the facts of a samples file (pair, hardware, versions), and the samples.

    Raises
    ------
    SpecsimError
        When the file is missing, no Parquet, not of this kind, or holds a measured point without its numbers.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path, MOST_FILE_BYTES, "samples file")
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise SpecsimError(f"{path}: {NO_SAMPLES}: cannot be read as Parquet: {first_line(error)}") from None
    try:
        facts = json.loads((table.schema.metadata or {})[METADATA])
    except (KeyError, ValueError, RecursionError):
        raise SpecsimError(f"{path}: {NO_SAMPLES}") from None
    form = facts.pop("format", None) if isinstance(facts, dict) else None
    if form not in (WITHOUT_MEANS, FORMAT):
        raise SpecsimError(f"{path}: samples of another version of specsim; expected format {FORMAT}")
    if form == WITHOUT_MEANS and "mean_s" not in table.schema.names:
        place = [each.name for each in fields(Sample)].index("mean_s")
        table = table.add_column(place, _schema().field(place), pa.array([NAN] * len(table), type=pa.float64()))
    if not table.schema.remove_metadata().equals(_schema()):
        raise SpecsimError(f"{path}: {NO_SAMPLES}")
    samples = [Sample(**row) for row in table.to_pylist()]
    for number, sample in enumerate(samples):
        check_numbers(f"{path}: row {number}", sample)
    return facts, samples


def check_numbers(where: str, sample: Sample) -> None:
    """Refuse a measured sample without its numbers; those of a skipped point may be NaN.

    Raises
    ------
    SpecsimError
        Naming `where` and the first key.
    """
    values = asdict(sample)
    for key, value in values.items():
        if value is None:
            raise SpecsimError(f"{where}: {key}: null; expected a value")
    for key, known in (("role", KINDS), ("mode", ("graph", "eager")), ("kind", KINDS.get(sample.role, ()))):
        if values[key] not in known:
            raise SpecsimError(f"{where}: {key}: {values[key]!r}; expected one of {', '.join(known)}")
    if sample.status != "ok":
        return
    for key, (least, expected) in NUMBERS.items():
        if not least <= values[key] < math.inf:
            raise SpecsimError(f"{where}: {key}: {values[key]}; expected a number {expected} where the status is ok")


def check_finished(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse the metadata of a sweep that has not reached both models.

    Raises
    ------
    SpecsimError
        Naming the first key that is missing.
    """
    for dotted in FACTS:
        value: Any = facts
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            raise SpecsimError(f"{path}: metadata: {dotted}: missing; expected a finished sweep of both models")


def check_apart(path: Path, samples: list[Sample], more: list[Sample]) -> None:
    """Refuse measurements that are already in `samples`, which would count twice.

    Raises
    ------
    SpecsimError
        Naming the first.
    """
    known = {(*each.name, each.measured_at, each.median_s) for each in samples}
    for each in more:
        if (*each.name, each.measured_at, each.median_s) in known:
            raise SpecsimError(f"{path}: {each.role} {each.key} was in a file before; expected each samples file once")
