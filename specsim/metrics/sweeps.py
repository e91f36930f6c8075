"""Many runs as one table, and means over seeds with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.metrics.store import is_run, read_run

if TYPE_CHECKING:
    from pandas import DataFrame

LEVEL = 0.95
SETTINGS = ("rps", "slo_scale", "requests", "seed", "replicas")
MEASURES = ("slo_attainment", "slo_goodput_tokens_per_s", "mean_tpot_s", "mean_ttft_s", "mean_tokens_per_verification")


def read_sweep(folder: Path) -> DataFrame:
    """Return one row per run below `folder` and class, the class ``all`` included.

    Columns: the choices of a run (``scheduler, trace, slo, acceptance, profile``), `SETTINGS`, ``slo_class`` and
    `MEASURES`.

    Raises
    ------
    SpecsimError
        When the folder holds no run, or one is damaged.
    """
    from pandas import DataFrame

    places = sorted(each for each in Path(folder).glob("*") if is_run(each)) if Path(folder).is_dir() else []
    if not places:
        raise SpecsimError(f"{str(folder)!r} holds no run folders; expected what `specsim run -m ... out=DIR` wrote")
    return DataFrame([row for place in places for row in _rows(place)])


def _rows(place: Path) -> list[dict[str, Any]]:
    run = read_run(place)
    config, block = run.config, run.metrics["specsim"]
    common = {**config["choices"], **{name: config[name] for name in SETTINGS}}
    whole = {
        **block,
        "mean_tpot_s": _seconds(run.metrics["mean_tpot_ms"]),
        "mean_ttft_s": _seconds(run.metrics["mean_ttft_ms"]),
    }
    classes = {**block["classes"], "all": whole}
    return [
        {**common, "slo_class": name, **{measure: values.get(measure) for measure in MEASURES}}
        for name, values in classes.items()
    ]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def over_seeds(table: DataFrame, measure: str, by: Sequence[str]) -> DataFrame:
    """Return ``mean`` and ``half_width`` of a measure over seeds for each group of `by`.

    The interval is Student's at 95%; it is NaN where there is one seed.
    """
    from scipy.stats import t

    groups = table.groupby(list(by), sort=True)[measure]
    found = groups.agg(["mean", "sem", "count"]).reset_index()
    found["half_width"] = t.ppf((1 + LEVEL) / 2, found["count"] - 1) * found["sem"]
    return found[[*by, "mean", "half_width", "count"]]


def paired_difference(table: DataFrame, measure: str, against: str, by: Sequence[str]) -> DataFrame:
    """Return how much each scheduler's measure exceeds that of `against`, over seeds, for each group of `by`.

    Runs are paired by seed, so that both have met the same classes and the same text (common random numbers): the
    interval is that of the differences. `by` names the settings beside the scheduler.

    Raises
    ------
    SpecsimError
        When the table has no run of `against`.
    """
    if against not in set(table["scheduler"]):
        raise SpecsimError(f"no run of scheduler {against!r} in the sweep")
    keys = [*by, "seed"]
    base = table[table["scheduler"] == against].set_index(keys)[measure]
    others = table[table["scheduler"] != against].copy()
    others["difference"] = others[measure].to_numpy() - base.loc[list(others[keys].itertuples(index=False))].to_numpy()
    return over_seeds(others, "difference", ["scheduler", *by])
