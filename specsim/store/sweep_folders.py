"""The folders of a sweep, read as one: run folders, summaries in parts, failures, and notes about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import expanded
from specsim.results.sweep_table import CODE, READ, differing, without_failures
from specsim.store.failure import Failure, read_failure
from specsim.store.parts import holds_runs, read_parts
from specsim.store.run_folder import has_failed, holds_remains, run_folders
from specsim.store.scan import scan
from specsim.store.summaries import Summary
from specsim.store.sweeps import Sweep

if TYPE_CHECKING:
    from pandas import DataFrame


def load_sweep(*folders: str | Path) -> Sweep:
    """Return the runs in the direct subfolders of `folders`, whatever their names.

    A damaged run is left out. A run with a copy counts once. Notes name both, and say if runs differ in the code or in
    the files that they have read.

    Raises
    ------
    SpecsimError
        When a folder holds no run, every run is damaged, or two copies of a run have different results.
    """
    if not folders:
        raise SpecsimError("load_sweep(): expected the folder of a sweep, or several")
    roots = [expanded(str(folder)) for folder in folders]
    places = [place for root in roots for place in run_folders(root)]
    summaries, failures, notes = _summaries(roots, places)
    for place in [each for each in places if has_failed(each) and not holds_remains(each)]:
        places.remove(place)
        try:
            failures.append(read_failure(place))
        except SpecsimError as error:
            notes.append(f"left out: {error}")
    found = scan([*places, *summaries], failures)
    notes += found.notes
    if not found.runs and not failures:
        raise SpecsimError(notes[0])
    return Sweep(found.runs, [*notes, *_mixed(found.table)], found, failures)


def _summaries(roots: Sequence[Path], places: Sequence[Path]) -> tuple[list[Summary], list[Failure], list[str]]:
    """Return the summaries and failures in the parts of `roots`, without those of runs in folders, and notes."""
    runs: list[Summary] = []
    failures: list[Failure] = []
    notes: list[str] = []
    in_folders = {place.name.rpartition("-")[2] for place in places}
    for root in roots:
        found = read_parts(root)
        if not holds_runs(root):
            raise SpecsimError(f"{str(root)!r} holds no run folders; expected what `specsim run -m ... out=DIR` wrote")
        runs += [each for key, each in found.runs.items() if key not in in_folders]
        failures += [each for key, each in found.failures.items() if key not in in_folders]
        notes += found.notes
    return runs, failures, notes


def _mixed(table: DataFrame) -> list[str]:
    """Return a line for each difference of the runs outside their settings: in the code, or in a file read."""
    keys = [key for key in differing(without_failures(table)) if key == CODE or READ in key]
    what = {key: "made by different code of specsim" if key == CODE else "made from different files" for key in keys}
    return [f"the runs were {what[key]}: the column {key} tells which" for key in keys if not key.endswith("origin")]
