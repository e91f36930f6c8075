"""Who is best where, and whether the seeds can tell: against means and intervals worked out by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from specsim import SpecsimError, sweep
from specsim.metrics.seeds import winners

LOAD = {"load.overloaded": False, "load.too_short": False}


def table(values):
    """Return rows of a sweep's table from attainments by (scheduler, rps): one a seed. Each server keeps up."""
    rows = [
        {"run": f"{name}{rps}{seed}", "scheduler": name, "rps": rps, "seed": seed, "slo_class": "all", "share": share}
        for (name, rps), shares in values.items()
        for seed, share in enumerate(shares)
    ]
    return (
        pd.DataFrame(rows)
        .assign(point="", varies_with_seed="acceptance")[
            ["run", "scheduler", "rps", "seed", "slo_class", "point", "varies_with_seed", "share"]
        ]
        .assign(**LOAD)
    )


CLEAR = {("a", 1): (0.9, 0.8, 0.85), ("b", 1): (0.5, 0.4, 0.46), ("c", 1): (0.1, 0.1, 0.1)}
CLOSE = {("a", 2): (0.5, 0.6, 0.7), ("b", 2): (0.7, 0.6, 0.6), ("c", 2): (0.1, 0.1, 0.1)}


def test_the_winner_its_lead_and_what_the_seeds_decide():
    found = winners(table(CLEAR | CLOSE), "share", ["rps"])
    assert found["rps"].tolist() == [1, 2]
    assert found["winner"].tolist() == ["a", "b"]
    assert found["second"].tolist() == ["b", "a"]
    assert found["mean"].tolist() == pytest.approx([0.85, 1.9 / 3])
    differences = np.array([[0.4, 0.4, 0.39], [0.2, 0.0, -0.1]])
    assert found["lead"].tolist() == pytest.approx(differences.mean(axis=1).tolist())
    reach = t.ppf(0.975, 2) * differences.std(axis=1, ddof=1) / np.sqrt(3)
    assert found["half_width"].tolist() == pytest.approx(reach.tolist())
    assert found["decided"].tolist() == [True, False]


def test_a_tie_is_counted():
    tied = {("b", 1): (0.5, 0.5), ("a", 1): (0.5, 0.5), ("c", 1): (0.2, 0.2)}
    found = winners(
        table(tied | {("d", 1): (0.1 + 0.2, 0.7), ("a", 2): (0.9, 0.8), ("b", 2): (0.1, 0.2)}), "share", ["rps"]
    )
    assert found["tied"].tolist() == [3, 1]
    assert winners(table({key: (np.nan, np.nan) for key in tied}), "share", ["rps"])["tied"].tolist() == [0]


def test_the_load_of_winner_and_second_stands_beside_them():
    frame = table({("a", 1): (0.9, 0.8), ("b", 1): (0.5, 0.4), ("c", 1): (0.1, 0.2)})
    frame = frame.astype(dict.fromkeys(LOAD, object))
    frame.loc[frame["scheduler"] == "c", "load.overloaded"] = True
    frame.loc[(frame["scheduler"] == "b") & (frame["seed"] == 0), ["load.overloaded", "load.too_short"]] = None, True
    found = winners(frame, "share", ["rps"]).iloc[0]
    assert (found["winner_load"], found["second_load"]) == ("kept up", "too short")
    frame.loc[(frame["scheduler"] == "b") & (frame["seed"] == 1), "load.overloaded"] = True
    assert winners(frame, "share", ["rps"])["second_load"].tolist() == ["overloaded"]
    with pytest.raises(SpecsimError, match=r"no column 'load.too_short'; expected the rows of a Sweep's table"):
        winners(frame.drop(columns="load.too_short"), "share", ["rps"])


def test_a_point_with_one_scheduler_is_refused():
    alone = {key: values for key, values in (CLEAR | CLOSE).items() if key in (("a", 1), ("a", 2), ("b", 2))}
    with pytest.raises(SpecsimError, match="one scheduler; expected two or more"):
        winners(table(alone), "share", ["rps"])
    with pytest.raises(SpecsimError, match="by=rpm: the runs do not differ in it"):
        winners(table(CLEAR), "share", ["rpm"])


def test_a_sweep_knows_its_winners_and_the_map_has_a_cell_for_each_point():
    axes = {"scheduler": ["fcfs", "continuous"], "rps": [2, 20], "slo_scale": [0.5, 2.0], "seed": range(2)}
    runs = sweep(axes | {"acceptance__alpha": [0.5, 0.9]}, trace="poisson", acceptance="bernoulli", requests=20)
    found = runs.winners()
    assert len(found) == 8
    means = runs.means().query("slo_class == 'all'").groupby(["rps", "slo_scale", "acceptance.alpha"])["mean"].max()
    assert found["mean"].tolist() == pytest.approx(means.tolist())
    found = found.set_index(["acceptance.alpha", "rps", "slo_scale"])
    figure = runs.map("rps", "slo_scale", "acceptance.alpha")
    assert [axes.get_title() for axes in figure.axes] == ["alpha = 0.5", "alpha = 0.9"]
    for alpha, axes in zip((0.5, 0.9), figure.axes, strict=True):
        assert len(axes.patches) == 4
        said = {text.get_position(): text.get_text() for text in axes.texts}
        for column, rps in enumerate((2, 20)):
            for row, scale in enumerate((2.0, 0.5)):
                cell = found.loc[(alpha, rps, scale)]
                lead = "tie" if cell["lead"] == 0 else f"+{100 * cell['lead']:.1f}"
                assert said[column, row] == f"{100 * cell['mean']:.0f} \u25d0\n{lead}"
        hatched = sum(patch.get_hatch() is not None for patch in axes.patches)
        assert hatched == (~found.loc[alpha]["decided"] & (found.loc[alpha]["tied"] == 1)).sum()
    assert set(found[found["tied"] == 1]["winner"]) <= {text.get_text() for text in figure.legends[0].get_texts()}


def test_less_of_a_measure_in_seconds_wins():
    seconds = table(CLEAR).rename(columns={"share": "mean_e2el_s"})
    found = winners(seconds, "mean_e2el_s", ["rps"]).iloc[0]
    assert (found["winner"], found["second"], found["decided"]) == ("c", "b", True)
    assert found["lead"] == pytest.approx((0.4 + 0.3 + 0.36) / 3)
    assert winners(seconds, "mean_e2el_s", ["rps"], better="more")["winner"].tolist() == ["a"]
    with pytest.raises(SpecsimError, match="better='most': expected more, less or None"):
        winners(seconds, "mean_e2el_s", ["rps"], better="most")
