"""Means over the seed alone, paired differences, a row a point, and a line for whatever would pool something else."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specsim.errors import SpecsimError
from specsim.metrics.seeds import COVERS, MEASURES, ONE_SEED, covers_said, over_seeds, paired_difference, point_means
from tests.made import refusal

MEASURE = "slo_attainment"


def table(classes=("all",), **axes):
    """A sweep's table over axes, its rows as a sweep makes them; measures are random, every run keeps up."""
    given = {"scheduler": ["adaserve", "fcfs"], "rps": [2, 4], "seed": [0, 1, 2]} | axes
    frame = pd.DataFrame(list(itertools.product(*given.values(), classes)), columns=[*given, "slo_class"])
    rest = [key for key in given if key != "seed"]
    frame.insert(0, "run", [f"run {place // len(classes)}" for place in range(len(frame))])
    frame["point"] = [str(row) for row in frame[rest].itertuples(index=False)]
    frame["varies_with_seed"] = "classes, acceptance"
    rng = np.random.default_rng(0)
    for name in MEASURES:
        frame[name] = rng.uniform(0.4, 0.5, len(frame))
    return frame.assign(**{"load.overloaded": False, "load.saturated": False, "load.too_short": False})


def test_one_seed_has_no_interval_and_says_so():
    given = table()
    found = over_seeds(given[(given["seed"] == 0) | (given["rps"] == 2)], MEASURE, ["scheduler", "rps"])
    assert list(found.columns) == ["scheduler", "rps", "mean", "half_width", "count", COVERS]
    one, several = found[found["rps"] == 4], found[found["rps"] == 2]
    assert one["half_width"].isna().all()
    assert set(one[COVERS]) == {ONE_SEED}
    assert several["half_width"].notna().all()
    assert set(several[COVERS]) == {"classes, acceptance"}
    assert (set(one["count"]), set(several["count"])) == ({1}, {3})


@pytest.mark.parametrize("key", ["slo_scale", "scheduler.num_speculative_tokens", "trace"])
def test_rows_that_differ_in_another_key_are_never_pooled(key):
    given = table(**{key: [0.8, 1.2]})
    for mean in (
        lambda: over_seeds(given, MEASURE, ["scheduler", "rps"]),
        lambda: paired_difference(given, MEASURE, "fcfs", ["rps"]),
    ):
        assert f"differ in {key} (0.8, 1.2)" in refusal(mean)
    assert len(over_seeds(given, MEASURE, ["scheduler", "rps", key])) == 8


def test_points_that_differ_in_what_the_table_does_not_hold_are_not_pooled():
    given = table(slo_scale=[0.8, 1.2]).drop(columns="slo_scale")
    with pytest.raises(SpecsimError, match="does not hold"):
        over_seeds(given, MEASURE, ["scheduler", "rps"])


def test_the_same_seed_twice_is_an_error():
    given = pd.concat([table(), table().iloc[[4]]])
    with pytest.raises(SpecsimError, match=r"scheduler=adaserve, rps=4, seed=1 stands twice"):
        over_seeds(given, MEASURE, ["scheduler", "rps"])
    with pytest.raises(SpecsimError, match="stands twice"):
        paired_difference(given, MEASURE, "fcfs", ["rps"])


def test_partners_that_differ_in_a_setting_are_no_partners():
    given = table()
    given["slo_scale"] = np.where(given["scheduler"] == "fcfs", 0.8, 1.2)
    given = given[["slo_scale", *given.columns.drop("slo_scale")]]
    with pytest.raises(SpecsimError, match="differ in slo_scale, too"):
        paired_difference(given, MEASURE, "fcfs", ["rps"])


def test_a_scheduler_may_bring_its_own_acceptance():
    given = table()
    given["acceptance"] = np.where(given["scheduler"] == "fcfs", "own", "common")
    given = given[["acceptance", *given.columns.drop("acceptance")]]
    found = paired_difference(given, MEASURE, "fcfs", ["rps"])
    assert len(found) == 2
    assert set(found[COVERS]) == {"classes, acceptance"}


def test_a_sweep_says_what_its_seeds_cover():
    (line,) = covers_said(table())
    assert "3 seeds" in line
    assert "classes and acceptance" in line
    assert "the trace's own" in line
    (all_of_it,) = covers_said(table().assign(varies_with_seed="arrivals, lengths, acceptance"))
    assert "arrivals, lengths and acceptance" in all_of_it
    assert "the trace's own" not in all_of_it
    assert covers_said(table(seed=[7])) == ()


POINTS = {"scheduler": ["vllm", "adaserve"], "rps": [10, 2]}


def values(frame, scheduler, rps, measure="slo_attainment"):
    return frame[(frame["scheduler"] == scheduler) & (frame["rps"] == rps)][measure].to_numpy()


def half_width(of):
    return stats.t.ppf(0.975, len(of) - 1) * stats.sem(of)


def test_a_point_is_one_row_in_the_order_of_the_sweep_with_the_mean_and_interval_of_each_measure():
    given = table(**POINTS)
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
def test_the_difference_is_that_of_equal_seeds_whatever_the_order_of_rows(against, base, other):
    given = table(**POINTS)
    found = point_means(given if against is None else given.sample(frac=1, random_state=3), against=against)
    assert set(found["against"]) == {base}
    assert found[found["scheduler"] == base]["difference"].isna().all()
    for row in found[found["scheduler"] == other].to_dict("records"):
        apart = values(given, other, row["rps"]) - values(given, base, row["rps"])
        assert (row["difference"], row["difference_half_width"]) == pytest.approx((apart.mean(), half_width(apart)))


def test_a_seed_without_a_partner_is_no_part_of_the_difference_and_a_point_without_one_has_none():
    given = table(**POINTS)
    lost = (given["scheduler"] == "vllm") & ((given["rps"] == 2) | (given["seed"] == 1))
    found = point_means(given[~lost]).set_index(["scheduler", "rps"])
    apart = (values(given, "adaserve", 10) - values(given, "vllm", 10))[[0, 2]]
    assert found["difference"]["adaserve", 10] == pytest.approx(apart.mean())
    assert np.isnan(found["difference"]["adaserve", 2])
    assert found["slo_attainment"]["adaserve", 2] == pytest.approx(values(given, "adaserve", 2).mean())
    alone = point_means(given[given["rps"].eq(10) == given["scheduler"].eq("vllm")])
    assert alone["difference"].isna().all()


def test_runs_that_failed_are_counted_and_are_in_no_mean():
    given = table(**POINTS)
    given.loc[[0, *range(3, 6)], ["point", "varies_with_seed", *MEASURES]] = None
    given["error"] = [None] * len(given)
    given.loc[[0, *range(3, 6)], "error"] = "out of memory"
    found = point_means(given)
    assert found[["seeds", "failed"]].to_numpy().tolist() == [[2, 1], [0, 3], [3, 0], [3, 0]]
    assert found["slo_attainment"][0] == pytest.approx(values(given, "vllm", 10)[1:].astype(float).mean())
    assert found["slo_attainment"].isna().tolist() == [False, True, False, False]
    assert found["load"].fillna("none").tolist() == ["kept up", "none", "kept up", "kept up"]
