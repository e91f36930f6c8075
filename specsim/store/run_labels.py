"""Names of runs that stand side by side: by the settings in which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from specsim.results.sweep_table import RUN, SEED, SweptRun, differing, sweep_table
from specsim.settings.identity import settings_of
from specsim.store.runs import StoredRun
from specsim.store.scan import names_of

OF_NO_RESULT = ("passes",)
"""Settings that say what a run keeps, and change none of its numbers."""


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
        SweptRun(place, settings_of(run.config), None, None, run.metrics)
        for place, run in zip(places, runs, strict=True)
    ).drop_duplicates(RUN)
    keys = [key for key in differing(table) if key not in OF_NO_RESULT]
    keys += [SEED] if table[SEED].nunique() > 1 else []
    told = [
        ",".join(f"{key}={_word(value)}" for key, value in zip(keys, row, strict=True))
        for row in table[keys].itertuples(index=False, name=None)
    ]
    # Without a key there is no column, and pandas returns no rows.
    told = told or [""] * len(runs)
    count = Counter(told)
    return [
        label if label and count[label] == 1 else f"{label} {name}".strip()
        for label, name in zip(told, folders, strict=True)
    ]


def _word(value: object) -> str:
    """Return a setting's value; a number without needless digits, ``none`` if the run has none."""
    if value is None or value != value:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
