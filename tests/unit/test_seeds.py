"""Means over the seed alone, paired differences, a row a point, who is best where; what would pool more is refused."""

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specsim import Sweep, sweep
from specsim.metrics import seeds
from specsim.metrics.tables import mean_of, means_table, number
from tests.made import refusal
from tests.unit.test_plots import caption

MEASURE = "slo_attainment"


def table(classes=("all",), **axes):
    """A sweep's table over axes, its rows as a sweep makes them; measures are random, every run keeps up."""
    given = {"scheduler": ["adaserve", "fcfs"], "rps": [2, 4], "seed": range(5)} | axes
    frame = pd.DataFrame(list(itertools.product(*given.values(), classes)), columns=[*given, "slo_class"])
    rest = [key for key in given if key != "seed"]
    frame.insert(0, "run", [f"run {place // len(classes)}" for place in range(len(frame))])
    frame["point"] = [str(row) for row in frame[rest].itertuples(index=False)]
    frame["varies_with_seed"] = "classes, acceptance"
    rng = np.random.default_rng(0)
    for name in seeds.MEASURES:
        frame[name] = rng.uniform(0.4, 0.5, len(frame))
    return frame.assign(**{"load.overloaded": False, "load.saturated": False, "load.too_short": False})


def test_fewer_than_five_seeds_have_no_interval_and_say_so():
    given = table()
    found = seeds.over_seeds(given[(given["seed"] < 4) | (given["rps"] == 2)], MEASURE, ["scheduler", "rps"])
    assert list(found.columns) == ["scheduler", "rps", "mean", "half_width", "count", seeds.COVERS]
    one, several = found[found["rps"] == 4], found[found["rps"] == 2]
    assert (set(one["half_width"].isna()), set(several["half_width"].isna())) == ({True}, {False})
    assert (set(one[seeds.COVERS]), set(several[seeds.COVERS])) == ({seeds.FEW_SEEDS}, {"classes, acceptance"})


def beside(key, own, common):
    """Return the table in which fcfs, and no other, has its own value of a key."""
    frame = table()
    frame.insert(0, key, np.where(frame["scheduler"] == "fcfs", own, common))
    return frame


pooled = partial(seeds.over_seeds, measure=MEASURE, by=["scheduler", "rps"])
paired = partial(seeds.paired_difference, measure=MEASURE, against="fcfs", by=["rps"])
TWICE = pd.concat([table(), table().iloc[[6]]])


@pytest.mark.parametrize(
    ("frame", "call", "said"),
    [
        *(
            (table(**{key: [0.8, 1.2]}), call, f"differ in {key} (0.8, 1.2)")
            for key in ("slo_scale", "scheduler.num_speculative_tokens", "trace")
            for call in (pooled, paired)
        ),
        (table(slo_scale=[0.8, 1.2]).drop(columns="slo_scale"), pooled, "does not hold"),
        (TWICE, pooled, "scheduler=adaserve, rps=4, seed=1 is in the table twice"),
        (TWICE, paired, "is in the table twice"),
        (table(), lambda frame: seeds.over_seeds(frame, "ttft_p99", ["rps"]), "did you mean 'p99_ttft_s'?"),
        (beside("slo_scale", 0.8, 1.2), paired, "differ in slo_scale, too"),
    ],
)
def test_what_differs_in_more_than_the_seed_is_never_pooled_or_paired(frame, call, said):
    assert said in refusal(call, frame)


def test_named_keys_and_a_scheduler_s_own_acceptance_are_no_hindrance_and_it_is_told_what_seeds_cover():
    assert len(seeds.over_seeds(table(slo_scale=[0.8, 1.2]), MEASURE, ["scheduler", "rps", "slo_scale"])) == 8
    found = paired(beside("acceptance", "own", "common"))
    assert [*found[seeds.COVERS]] == ["classes, acceptance"] * 2
    said, own = "5 seeds: an interval over them covers", "arrivals and lengths are the trace's own under each"
    assert seeds.covers_said(table(concurrency=[4])) == (f"{said} classes and acceptance; {own}",)
    hint = "(trace.resample=SECONDS draws them anew)"
    assert seeds.covers_said(table()) == (f"{said} classes and acceptance; {own} {hint}",)
    resampled = table().assign(varies_with_seed="arrivals, lengths, acceptance")
    assert seeds.covers_said(resampled) == (f"{said} arrivals, lengths and acceptance",)
    assert seeds.covers_said(table(seed=[7])) == ()
    assert seeds.covers_said(table(seed=[0, 1]))[0].startswith("2 seeds: an interval over them (from 5 on) covers")


POINTS = {"scheduler": ["vllm", "adaserve"], "rps": [10, 2]}


def values(frame, scheduler, rps, measure="slo_attainment"):
    return frame[(frame["scheduler"] == scheduler) & (frame["rps"] == rps)][measure].to_numpy()


def half_width(of):
    return stats.t.ppf(0.975, len(of) - 1) * stats.sem(of)


def test_a_point_is_one_row_in_the_order_of_the_sweep_with_the_mean_and_interval_of_each_measure():
    given = table(**POINTS)
    given.loc[[1, *range(10, 15)], "load.overloaded"] = True
    found = seeds.point_means(given)
    points = [["vllm", 10], ["vllm", 2], ["adaserve", 10], ["adaserve", 2]]
    assert found[["scheduler", "rps"]].to_numpy().tolist() == points
    assert found[["seeds", "load_seeds"]].to_numpy().tolist() == [[5, 1], [5, 5], [5, 5], [5, 5]]
    lines = means_table(found, [{"rps": rps} for _, rps in points], [], "").splitlines()
    near = [(0.9953, 0.0074), (0.9975, 0.0057), (0.9983, np.nan), (0.9997, 0.0021)]
    rows = [{MEASURE: mean, f"{MEASURE}_half_width": half, "tpot_attainment": mean} for mean, half in near]
    shown = [mean_of(row, MEASURE).replace(" \u00b1 ", "~") for row in rows]
    assert shown == ["99.5~0.7", "99.8~0.6", "99.8", "99.97~0.21"]
    assert [number(share, 100, 1) for share in (0.99951, 1.0, 1 - 1e-9)] == ["99.95", "100.0", "100.0"]
    assert [line.count("OVERLOADED") + line.count("  1 of 5 OVERLOADED") for line in lines[4:8]] == [2, 0, 1, 0]
    for row in found.to_dict("records"):
        for name in seeds.MEASURES:
            of = values(given, row["scheduler"], row["rps"], name)
            assert (row[name], row[f"{name}_half_width"]) == pytest.approx((of.mean(), half_width(of)))


@pytest.mark.parametrize(("against", "base", "other"), [(None, "vllm", "adaserve"), ("adaserve", "adaserve", "vllm")])
def test_the_difference_is_that_of_equal_seeds_whatever_the_order_of_rows(against, base, other):
    given = table(**POINTS)
    found = seeds.point_means(given if against is None else given.sample(frac=1, random_state=3), against=against)
    assert set(found["against"]) == {base}
    assert found[found["scheduler"] == base]["difference"].isna().all()
    for row in found[found["scheduler"] == other].to_dict("records"):
        apart = values(given, other, row["rps"]) - values(given, base, row["rps"])
        assert (row["difference"], row["difference_half_width"]) == pytest.approx((apart.mean(), half_width(apart)))


def test_a_seed_without_a_partner_is_no_part_of_the_difference_and_a_point_without_one_has_none():
    given = table(**POINTS)
    lost = (given["scheduler"] == "vllm") & ((given["rps"] == 2) | (given["seed"] == 1))
    found = seeds.point_means(given[~lost]).set_index(["scheduler", "rps"])
    apart = (values(given, "adaserve", 10) - values(given, "vllm", 10))[[0, 2, 3, 4]]
    assert found["difference"]["adaserve", 10] == pytest.approx(apart.mean())
    assert np.isnan(found["difference"]["adaserve", 2])
    assert found["slo_attainment"]["adaserve", 2] == pytest.approx(values(given, "adaserve", 2).mean())
    alone = seeds.point_means(given[given["rps"].eq(10) == given["scheduler"].eq("vllm")])
    assert alone["difference"].isna().all()


def test_runs_that_failed_are_counted_and_are_in_no_mean():
    given = table(**POINTS)
    given.loc[[0, *range(5, 10)], ["point", "varies_with_seed", *seeds.MEASURES]] = None
    given["error"] = ["out of memory" if place in (0, *range(5, 10)) else None for place in range(len(given))]
    found = seeds.point_means(given)
    assert found[["seeds", "failed"]].to_numpy().tolist() == [[4, 1], [0, 5], [5, 0], [5, 0]]
    assert found["slo_attainment"][0] == pytest.approx(values(given, "vllm", 10)[1:].astype(float).mean())
    assert found["slo_attainment"].isna().tolist() == [False, True, False, False]
    assert found["load"].fillna("none").tolist() == ["kept up", "none", "kept up", "kept up"]


LOAD = {"load.overloaded": False, "load.too_short": False}


def attained(values):
    """Return rows of a sweep's table from attainments by (scheduler, rps): one a seed. Each server keeps up."""
    fixed = {"slo_class": "all", "point": "", "varies_with_seed": "acceptance"}
    return pd.DataFrame(
        {"run": f"{name}{rps}{seed}", "scheduler": name, "rps": rps, "seed": seed, **fixed, "share": share, **LOAD}
        for (name, rps), shares in values.items()
        for seed, share in enumerate(shares)
    )


CLEAR = {("a", 1): (0.9, 0.8, 0.85, 0.9, 0.8), ("b", 1): (0.5, 0.4, 0.46, 0.5, 0.4), ("c", 1): (0.1,) * 5}
CLOSE = {("a", 2): (0.5, 0.6, 0.7, 0.5, 0.6), ("b", 2): (0.7, 0.6, 0.6, 0.5, 0.7), ("c", 2): (0.1,) * 5}


def test_the_winner_its_lead_what_the_seeds_decide_and_how_many_tie():
    found = seeds.winners(attained(CLEAR | CLOSE), "share", ["rps"])
    names = found[["rps", "winner", "second", "decided"]].to_numpy().tolist()
    assert names == [[1, "a", "b", True], [2, "b", "a", False]]
    assert found["mean"].tolist() == pytest.approx([0.85, 3.1 / 5])
    differences = np.array([[0.4, 0.4, 0.39, 0.4, 0.4], [0.2, 0.0, -0.1, 0.0, 0.1]])
    assert found["lead"].tolist() == pytest.approx(differences.mean(axis=1).tolist())
    assert found["half_width"].tolist() == pytest.approx([half_width(each) for each in differences])
    four = seeds.winners(attained({key: shares[:4] for key, shares in CLEAR.items()}), "share", ["rps"])
    assert four[["winner", "decided"]].to_numpy().tolist() == [["a", False]], "so few may agree by chance"
    tied = {("b", 1): (0.5, 0.5), ("a", 1): (0.5, 0.5), ("c", 1): (0.2, 0.2)}
    more = {("d", 1): (0.1 + 0.2, 0.7), ("a", 2): (0.9, 0.8), ("b", 2): (0.1, 0.2)}
    assert seeds.winners(attained(tied | more), "share", ["rps"])["tied"].tolist() == [3, 1]
    assert seeds.winners(attained({key: (np.nan, np.nan) for key in tied}), "share", ["rps"])["tied"].tolist() == [0]


def test_the_load_of_winner_and_second_stands_beside_them():
    frame = attained({("a", 1): (0.9, 0.8), ("b", 1): (0.5, 0.4), ("c", 1): (0.1, 0.2)})
    frame = frame.astype(dict.fromkeys(LOAD, object))
    frame.loc[frame["scheduler"] == "c", "load.overloaded"] = True
    frame.loc[(frame["scheduler"] == "b") & (frame["seed"] == 0), ["load.overloaded", "load.too_short"]] = None, True
    found = seeds.winners(frame, "share", ["rps"]).iloc[0]
    assert (found["winner_load"], found["second_load"]) == ("kept up", "too short")
    frame.loc[(frame["scheduler"] == "b") & (frame["seed"] == 1), "load.overloaded"] = True
    assert seeds.winners(frame, "share", ["rps"])["second_load"].tolist() == ["overloaded"]
    said = "no column 'load.too_short'; expected the rows of a Sweep's table"
    assert said in refusal(seeds.winners, frame.drop(columns="load.too_short"), "share", ["rps"])


def test_a_point_with_one_scheduler_is_refused():
    alone = {key: values for key, values in (CLEAR | CLOSE).items() if key in (("a", 1), ("a", 2), ("b", 2))}
    several = attained(alone)
    several.insert(0, "replicas", [1, 2, 2] * 5)
    said = "one scheduler; expected two or more to compare, or of='replicas'"
    assert said in refusal(seeds.winners, several, "share", ["rps"])
    assert "by=rpm: the runs do not differ in it" in refusal(seeds.winners, attained(CLEAR), "share", ["rpm"])


def test_a_sweep_knows_its_winners_and_the_map_has_a_cell_for_each_point():
    axes = {"scheduler": ["fcfs", "continuous"], "rps": [2, 20], "slo_scale": [0.5, 2.0], "seed": range(2)}
    runs = sweep(axes | {"acceptance__alpha": [0.5, 0.9]}, trace="poisson", acceptance="bernoulli", requests=20)
    found = runs.winners()
    assert len(found) == 8
    means = runs.means().query("slo_class == 'all'").groupby(["rps", "slo_scale", "acceptance.alpha"])["mean"].max()
    assert found["mean"].tolist() == pytest.approx(means.tolist())
    found = found.set_index(["acceptance.alpha", "rps", "slo_scale"])
    one = runs.select(acceptance__alpha=0.5)
    assert [len(axes.patches) for axes in one.map("rps", "slo_scale").axes] == [4]
    assert "slo_scale 2, requests 20, acceptance.alpha 0.5. " in one.select(slo_scale=2.0).figure().caption
    zipped = Sweep([each for each in runs if (each.config["rps"] == 2) == (each.config["slo_scale"] == 0.5)])
    figure = zipped.map("rps", "acceptance.alpha")
    assert [len(axes.patches) for axes in figure.axes] == [4], "a scale for each rate"
    assert "What differs along with rps: slo_scale." in caption(figure)
    (legend,) = runs.select(scheduler="fcfs").map("acceptance.alpha", "slo_scale", of="rps").legends
    assert "rps = 2" in {text.get_text() for text in legend.get_texts()}
    unset = sweep({"acceptance_scale": [None, 0.3], "rps": [20]}, scheduler="vllm_spec", trace="poisson", requests=20)
    (legend,) = unset.select(acceptance_scale=[None, 0.3]).map("rps", "scheduler", of="acceptance_scale").legends
    assert "against=none: these runs have no acceptance_scale" in refusal(unset.figure, against="none")
    assert "acceptance_scale = none" in {text.get_text() for text in legend.get_texts()}
    said = "differ in acceptance.alpha, too; expected panel='acceptance.alpha' or select(acceptance__alpha=..)"
    assert said in refusal(runs.map, "rps", "slo_scale")
    assert "map: rps, slo_scale, rps, scheduler: one is given twice" in refusal(runs.map, "rps", "slo_scale", "rps")
    figure = runs.map("rps", "slo_scale", "acceptance.alpha")
    assert [axes.get_title() for axes in figure.axes] == ["alpha = 0.5", "alpha = 0.9"]
    for alpha, axes in zip((0.5, 0.9), figure.axes, strict=True):
        assert len(axes.patches) == 4
        said = {text.get_position(): text.get_text() for text in axes.texts}
        for (column, rps), (row, scale) in itertools.product(enumerate((2, 20)), enumerate((2.0, 0.5))):
            cell = found.loc[(alpha, rps, scale)]
            lead = "tie" if cell["lead"] == 0 else f"+{100 * cell['lead']:.1f}"
            assert said[column, row] == f"{number(cell['mean'], 100, 0)} \u25d0\n{lead}"
        hatched = sum(patch.get_hatch() is not None for patch in axes.patches)
        assert hatched == (~found.loc[alpha]["decided"] & (found.loc[alpha]["tied"] == 1)).sum()
    assert set(found[found["tied"] == 1]["winner"]) <= {text.get_text() for text in figure.legends[0].get_texts()}


def test_less_of_a_measure_in_seconds_wins():
    seconds = attained(CLEAR).rename(columns={"share": "mean_e2el_s"})
    found = seeds.winners(seconds, "mean_e2el_s", ["rps"]).iloc[0]
    assert (found["winner"], found["second"], found["decided"]) == ("c", "b", True)
    assert found["lead"] == pytest.approx((0.4 + 0.3 + 0.36 + 0.4 + 0.3) / 5)
    assert seeds.winners(seconds, "mean_e2el_s", ["rps"], better="more")["winner"].tolist() == ["a"]
    assert "better='most': expected more, less or None" in refusal(seeds.winners, seconds, "s", ["rps"], better="most")
