"""A row a point: means over seeds, the paired difference from the first scheduler, and their table."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specsim.metrics.seeds import MEASURES, point_means


def table(schedulers=("vllm", "adaserve"), rates=(10, 2), seeds=(0, 1, 2), **more):
    """A sweep's table, its rows as a sweep makes them; every measure is rng."""
    given = {"scheduler": schedulers, "rps": rates} | more | {"seed": seeds}
    frame = pd.DataFrame(list(itertools.product(*given.values())), columns=list(given))
    rest = [key for key in given if key != "seed"]
    frame.insert(0, "run", [f"run {place}" for place in range(len(frame))])
    frame["slo_class"] = "all"
    frame["point"] = [str(row) for row in frame[rest].itertuples(index=False)]
    frame["varies_with_seed"] = "classes, acceptance"
    rng = np.random.default_rng(0)
    for name in MEASURES:
        frame[name] = rng.uniform(0.4, 0.5, len(frame))
    return frame.assign(**{"load.overloaded": False, "load.saturated": False, "load.too_short": False})


def values(frame, scheduler, rps, measure="slo_attainment"):
    return frame[(frame["scheduler"] == scheduler) & (frame["rps"] == rps)][measure].to_numpy()


def half_width(of):
    return stats.t.ppf(0.975, len(of) - 1) * stats.sem(of)


def test_a_point_is_one_row_in_the_order_of_the_sweep_with_the_mean_and_interval_of_each_measure():
    given = table()
    found = point_means(given)
    assert list(zip(found["scheduler"], found["rps"], strict=True)) == [
        ("vllm", 10),
        ("vllm", 2),
        ("adaserve", 10),
        ("adaserve", 2),
    ]
    assert found["seeds"].tolist() == [3, 3, 3, 3]
    for row in found.to_dict("records"):
        for name in MEASURES:
            of = values(given, row["scheduler"], row["rps"], name)
            assert (row[name], row[f"{name}_half_width"]) == pytest.approx((of.mean(), half_width(of)))


@pytest.mark.parametrize(("against", "base", "other"), [(None, "vllm", "adaserve"), ("adaserve", "adaserve", "vllm")])
def test_the_difference_is_that_of_equal_seeds(against, base, other):
    given = table()
    found = point_means(given, against=against)
    assert set(found["against"]) == {base}
    assert found[found["scheduler"] == base]["difference"].isna().all()
    for row in found[found["scheduler"] == other].to_dict("records"):
        apart = values(given, other, row["rps"]) - values(given, base, row["rps"])
        assert (row["difference"], row["difference_half_width"]) == pytest.approx((apart.mean(), half_width(apart)))


def test_a_seed_without_a_partner_is_no_part_of_the_difference_and_a_point_without_one_has_none():
    given = table()
    lost = (given["scheduler"] == "vllm") & ((given["rps"] == 2) | (given["seed"] == 1))
    found = point_means(given[~lost]).set_index(["scheduler", "rps"])
    apart = (values(given, "adaserve", 10) - values(given, "vllm", 10))[[0, 2]]
    assert found["difference"]["adaserve", 10] == pytest.approx(apart.mean())
    assert np.isnan(found["difference"]["adaserve", 2])
    assert found["slo_attainment"]["adaserve", 2] == pytest.approx(values(given, "adaserve", 2).mean())
    alone = point_means(given[given["rps"].eq(10) == given["scheduler"].eq("vllm")])
    assert alone["difference"].isna().all()


def test_runs_that_failed_are_counted_and_are_in_no_mean():
    given = table()
    given.loc[[0, *range(3, 6)], ["point", "varies_with_seed", *MEASURES]] = None
    given["error"] = [None] * len(given)
    given.loc[[0, *range(3, 6)], "error"] = "out of memory"
    found = point_means(given)
    assert found[["seeds", "failed"]].to_numpy().tolist() == [[2, 1], [0, 3], [3, 0], [3, 0]]
    assert found["slo_attainment"][0] == pytest.approx(values(given, "vllm", 10)[1:].astype(float).mean())
    assert found["slo_attainment"].isna().tolist() == [False, True, False, False]
    assert found["load"].fillna("none").tolist() == ["kept up", "none", "kept up", "kept up"]
