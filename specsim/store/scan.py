"""Many runs, each read once: their table, and notes about runs left out and about the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.config.identity import HASH_CHARACTERS, Value, flat, settings_of, shared_identity
from specsim.errors import SpecsimError, printable
from specsim.metrics.any_run import AnyRun
from specsim.metrics.sweep_table import CODE, READ, RUN, SEED, SweptRun, differing, sweep_table, word
from specsim.store.runs import StoredRun, read_run
from specsim.store.summaries import Failure

if TYPE_CHECKING:
    from pandas import DataFrame

OF_NO_RESULT = ("passes",)
"""Settings that say what a run keeps, and change none of its numbers."""


class Scan(NamedTuple):
    """A table, the runs and failures in it, notes about the whole, and the notes of each run."""

    table: DataFrame
    runs: tuple[AnyRun | Path, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    run_notes: tuple[tuple[str, ...], ...]


def scan(runs: Sequence[AnyRun | Path], failures: Sequence[Failure] = ()) -> Scan:
    """Read each run once; a damaged run and a second copy are left out, with a note that names them.

    Raises
    ------
    SpecsimError
        When two copies of a run have different results.
    """
    names = names_of([*runs, *failures])
    kept: list[AnyRun | Path] = []
    notes: list[str] = []
    run_notes: list[tuple[str, ...]] = []
    seen: dict[tuple[str | None, Value | None], tuple[str, AnyRun | Path]] = {}

    def distinct() -> Iterator[SweptRun]:
        for name, place in zip(names, runs, strict=False):
            try:
                run = read_run(place) if isinstance(place, Path) else place
                provenance = run.provenance
                row = swept(name, run, provenance)
            except SpecsimError as error:
                notes.append(f"left out: {error}")
                continue
            key = row.point, row.settings.get(SEED)
            if key in seen:
                notes.append(_twice(seen[key], (name, place)))
                continue
            seen[key] = (name, place)
            kept.append(place)
            run_notes.append(tuple(provenance.get("notes", ())))
            yield row
        for name, each in zip(names[len(runs) :], failures, strict=True):
            yield SweptRun(name, _settings_of(each.config), None, None, None, each.error)

    table = sweep_table(distinct())
    return Scan(table, tuple(kept), tuple(failures), tuple(notes), tuple(run_notes))


def swept(name: str, run: AnyRun, provenance: Mapping[str, Any] | None = None) -> SweptRun:
    """Return a run as a row of a table, with the checksums of what it read; SpecsimError for one of an old version."""
    try:
        provenance = run.provenance if provenance is None else provenance
        settings = {**_settings_of(run.made_of.config), **_read_by(provenance)}
        # From the provenance, since the trace's file may have changed or gone since the run.
        varies = ", ".join(provenance["varies_with_seed"])
    except (LookupError, TypeError, AttributeError) as error:
        said = "does not say what it was made from, or what its seed drew: an earlier version stored it; run it again"
        raise SpecsimError(f"{name!r} {said}") from error
    point = shared_identity({each: value for each, value in settings.items() if each != SEED})
    return SweptRun(name, settings, point, varies, run.metrics)


def _twice(one: tuple[str, AnyRun | Path], other: tuple[str, AnyRun | Path]) -> str:
    first, second = (
        flat(read_run(place).metrics if isinstance(place, Path) else place.metrics) for _, place in (one, other)
    )
    if first != second:
        raise SpecsimError(
            f"{one[0]!r} and {other[0]!r} hold one configuration and different results; expected one of them"
        )
    return f"{one[0]!r} and {other[0]!r} hold the same run: it is counted once"


def names_of(runs: Sequence[AnyRun | Failure | Path]) -> list[str]:
    """Return a name for each run: its folder's, or its path if two share it; else a summary's, or a number."""
    folders = [run if isinstance(run, Path) else getattr(run, "folder", None) for run in runs]
    named = [getattr(run, "name", "") or str(place) for place, run in enumerate(runs)]
    both = list(zip(named, folders, strict=True))
    # No table holds the bytes of a name in another encoding than UTF-8.
    short = [printable(name if folder is None else folder.name) for name, folder in both]
    if len(set(short)) == len(short):
        return short
    return [printable(name if folder is None else str(folder)) for name, folder in both]


def labels_of(runs: Sequence[StoredRun]) -> list[str]:
    """Return a name for each run: ``key=value`` of the settings in which the runs differ, joined by commas.

    Where several runs have the same settings, the name of its folder stands behind those of each; it stands alone
    where no setting differs. A folder is named by its path if another has its name.

    Raises
    ------
    SpecsimError
        When the configuration of a run is missing or damaged.
    """
    folders = names_of([run.folder for run in runs])
    places = map(str, range(len(runs)))
    table = sweep_table(
        SweptRun(place, _settings_of(run.config), None, None, run.metrics)
        for place, run in zip(places, runs, strict=True)
    ).drop_duplicates(RUN)
    keys = [key for key in differing(table) if key not in OF_NO_RESULT]
    keys += [SEED] if table[SEED].nunique() > 1 else []
    told = [
        ",".join(f"{key}={word(value)}" for key, value in zip(keys, row, strict=True))
        for row in table[keys].itertuples(index=False, name=None)
    ]
    # Without a key there is no column, and pandas returns no rows.
    told = told or [""] * len(runs)
    count = Counter(told)
    return [
        label if label and count[label] == 1 else f"{label} {name}".strip()
        for label, name in zip(told, folders, strict=True)
    ]


def _settings_of(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the settings of a run; its plug-ins are told by the scheduler, and by the checksums of their code."""
    return {key: value for key, value in settings_of(config).items() if key != "plugins"}


def _read_by(provenance: Mapping[str, Any]) -> dict[str, Value]:
    """Return the checksums of what a run read: trace, recording, plug-ins, and specsim's code."""
    trace = provenance["trace"]
    found = {
        f"trace{READ}origin": trace["origin"],
        f"trace{READ}sha256": trace["sha256"],
        f"acceptance{READ}sha256": provenance["recording_sha256"],
        "version": provenance["versions"]["specsim"],
        CODE: provenance["code_sha256"][:HASH_CHARACTERS],
        **{f"scheduler{READ}{name}": each and each[:HASH_CHARACTERS] for name, each in provenance["plugins"].items()},
    }
    return flat(found)
