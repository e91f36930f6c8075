"""The run folder on disk: written whole or not at all, read back with errors a person can act on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, beside, first_line, nearest
from specsim.metrics.schema import PASS_COLUMNS, REQUEST_COLUMNS, SCHEMA_VERSION

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

METRICS_FILE = "metrics.json"
REQUESTS_FILE = "requests.parquet"
PASSES_FILE = "passes.parquet"
CONFIG_FILE = "config.yaml"
PROVENANCE_FILE = "provenance.json"
NAME_BYTES = 120
"""Of a readable name: with a hash behind it and while it is written, it stays below the 255 of a file system."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run folder: ``metrics`` in memory, everything else read from disk at each access.

    Raises
    ------
    SpecsimError
        From each property, when its file is missing, damaged or lacks a column.
    """

    folder: Path
    metrics: dict[str, Any]

    @property
    def requests(self) -> DataFrame:
        """The rows of ``requests.parquet``, one per arrived request."""
        return _read_parquet(self.folder / REQUESTS_FILE, REQUEST_COLUMNS)

    @property
    def passes(self) -> DataFrame | None:
        """The rows of ``passes.parquet``, one per forward pass; None where they were not recorded."""
        path = self.folder / PASSES_FILE
        return _read_parquet(path, PASS_COLUMNS) if path.exists() else None

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return _read_yaml(self.folder / CONFIG_FILE)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines worth reading that the run gave."""
        return tuple(self.provenance.get("notes", ()))

    @property
    def slo_attainment(self) -> float:
        """Share of all arrived requests that met their objectives."""
        return float(self.metrics["specsim"]["slo_attainment"])

    def plot(self, folder: str | Path | None = None) -> list[Path]:
        """Draw the run's figures into `folder`, by default ``figures`` in its own, and return their paths."""
        from specsim.metrics.plots import plot_run

        return plot_run(self, self.folder / "figures" if folder is None else folder)

    def _repr_html_(self) -> str:
        from specsim.metrics.html import run_html

        return run_html(self.config, self.metrics, self.notes)

    @property
    def provenance(self) -> dict[str, Any]:
        """Wall-clock figures, dates, host and versions."""
        return _read_json(self.folder / PROVENANCE_FILE)


def write_run(
    folder: Path,
    *,
    table: DataFrame,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    provenance: Mapping[str, Any],
    passes: Mapping[str, NDArray[np.generic]] | None = None,
) -> None:
    """Write a run folder; other files already in ``folder`` stay, an older run in it is replaced.

    Every file is complete on disk before the first takes its place. Where ``folder`` exists, ``metrics.json``
    is removed first and placed last: an interruption leaves the old run, or none, or the new one.

    Raises
    ------
    SpecsimError
        When the folder cannot be written, or a number in a JSON file is not finite.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise SpecsimError(f"run folder {str(folder)!r} is a file; expected a new name or a folder")
    staging = (folder if folder.is_dir() else folder.parent) / f".{folder.name}.{os.getpid()}.tmp"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        _write_json(staging / PROVENANCE_FILE, provenance, sort_keys=True)
        (staging / CONFIG_FILE).write_text(yaml_text(dict(config)), encoding="utf-8")
        _write_parquet(staging / REQUESTS_FILE, table, REQUEST_COLUMNS)
        if passes is not None:
            _write_parquet(staging / PASSES_FILE, passes, PASS_COLUMNS)
        _write_json(staging / METRICS_FILE, metrics, sort_keys=False)
        _place(staging, folder)
    except OSError as error:
        raise SpecsimError(f"cannot write run folder {str(folder)!r}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds a complete run."""
    return all((Path(folder) / name).is_file() for name in (METRICS_FILE, REQUESTS_FILE))


def readable_name(named: Mapping[str, Any]) -> str:
    """Return settings as a name for a folder or file, at most `NAME_BYTES` long; "run" for none."""
    text = ",".join(f"{key}={value}" for key, value in named.items()) or "run"
    plain = "".join(each if each.isalnum() or each in "=,.-_" else "_" for each in text)
    return plain.encode()[:NAME_BYTES].decode(errors="ignore")


def run_folders(folder: Path) -> list[Path]:
    """Return the run folders right below ``folder``, by name; a run that is just being written is none."""
    inside = Path(folder).iterdir() if Path(folder).is_dir() else ()
    return sorted(each for each in inside if not each.name.startswith(".") and is_run(each))


def read_run(folder: Path) -> StoredRun:
    """Return the run in ``folder``.

    Raises
    ------
    SpecsimError
        When there is no such folder, it is not a run folder, its ``metrics.json`` is damaged, or it was
        written by another schema than this version reads.
    """
    folder = Path(folder)
    if folder.is_file():
        raise SpecsimError(f"{str(folder)!r} is a file; expected a run folder")
    if not folder.is_dir():
        raise SpecsimError(f"no run folder {str(folder)!r}{beside(folder)}")
    if not is_run(folder):
        raise SpecsimError(
            f"{str(folder)!r} is no run folder: it lacks {METRICS_FILE} or {REQUESTS_FILE}{_inside(folder)}"
        )
    path = folder / METRICS_FILE
    metrics = _read_json(path)
    block = metrics.get("specsim")
    version = block.get("schema_version") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(version, int):
        raise SpecsimError(f"{str(path)!r} has no specsim.schema_version; expected a file that specsim wrote")
    if version > SCHEMA_VERSION:
        raise SpecsimError(
            f"{str(path)!r} has schema_version {version}; this specsim reads up to {SCHEMA_VERSION}: upgrade"
        )
    if version < SCHEMA_VERSION:
        raise SpecsimError(
            f"{str(path)!r} has schema_version {version}, whose attainment leaves out the wait for the first token; "
            f"this specsim reads {SCHEMA_VERSION}: run it again"
        )
    _check_classes(path, block.get("classes"))
    return StoredRun(folder, metrics)


def _check_classes(path: Path, classes: Any) -> None:
    if not isinstance(classes, dict):
        raise SpecsimError(f"{str(path)!r} is damaged: specsim.classes is {classes!r}; expected one block a class")
    for name, block in classes.items():
        if not isinstance(block, dict) or "slo_attainment" not in block:
            raise SpecsimError(f"{str(path)!r} is damaged: specsim.classes.{name} has no slo_attainment")


def _place(staging: Path, folder: Path) -> None:
    if not folder.exists():
        staging.replace(folder)
        return
    (folder / METRICS_FILE).unlink(missing_ok=True)
    (folder / PASSES_FILE).unlink(missing_ok=True)
    for path in sorted(staging.iterdir(), key=lambda staged: staged.name == METRICS_FILE):
        path.replace(folder / path.name)


def _write_json(path: Path, content: Mapping[str, Any], *, sort_keys: bool) -> None:
    try:
        text = json.dumps(content, indent=2, sort_keys=sort_keys, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise SpecsimError(f"{path.name} cannot hold NaN or infinity; expected null: {error}") from error
    path.write_text(text + "\n", encoding="utf-8")


def yaml_text(value: Any) -> str:
    """Return plain values as ``config.yaml`` holds them."""
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=True, allow_unicode=True, default_flow_style=False)
    return text.removesuffix("...\n")


def _write_parquet(path: Path, columns: Any, types: Mapping[str, str]) -> None:
    """Write ``columns[name]`` in the order of ``types``; no pandas metadata, so data alone sets the bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(name, _arrow_type(kind), nullable=False) for name, kind in types.items()],
        metadata={"specsim_schema_version": str(SCHEMA_VERSION)},
    )
    arrays = [pa.array(np.asarray(columns[name]), _arrow_type(kind)) for name, kind in types.items()]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    return pa.type_for_alias(kind)


def _read_parquet(path: Path, types: Mapping[str, str]) -> DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A folder of a sweep named rps=2 is not a partition.
        table = pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise SpecsimError(f"{str(path)!r} is missing; expected it beside {METRICS_FILE}") from None
    except (pa.ArrowException, OSError) as error:
        raise SpecsimError(f"{str(path)!r} is damaged: not a Parquet file ({first_line(error)})") from error
    missing = [name for name in types if name not in table.column_names]
    if missing:
        raise SpecsimError(f"{str(path)!r} lacks the column {missing[0]!r}{nearest(missing[0], table.column_names)}")
    for name, kind in types.items():
        if table.schema.field(name).type != _arrow_type(kind):
            found = table.schema.field(name).type
            raise SpecsimError(f"{str(path)!r} is damaged: column {name!r} holds {found}, expected {kind}")
    frame: DataFrame = table.select(list(types)).to_pandas()
    return frame


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecsimError(f"{str(path)!r} is missing; expected it beside {REQUESTS_FILE}") from None
    except json.JSONDecodeError as error:
        raise SpecsimError(f"{str(path)!r} line {error.lineno} is damaged: not JSON ({error.msg})") from error
    except UnicodeDecodeError as error:
        raise SpecsimError(f"{str(path)!r} byte {error.start} is damaged: not UTF-8 text") from error
    if not isinstance(value, dict):
        raise SpecsimError(f"{str(path)!r} holds {type(value).__name__}; expected a JSON object")
    return value


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        # The same values as safe_load, eight times as fast where libyaml is there.
        value = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        raise SpecsimError(f"{str(path)!r} is missing; expected it beside {METRICS_FILE}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecsimError(f"{str(path)!r} is damaged: not YAML ({first_line(error)})") from error
    if not isinstance(value, dict):
        raise SpecsimError(f"{str(path)!r} holds {type(value).__name__}; expected a YAML mapping")
    return value


def _inside(folder: Path) -> str:
    """Name a run folder one level below, for whoever gave the folder of a sweep."""
    below = run_folders(folder)
    return f"; did you mean {str(below[0])!r}?" if below else ""
