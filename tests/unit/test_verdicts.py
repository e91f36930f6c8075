"""What a run's load comes to in a word, alone and in a table."""

import pandas as pd
import pytest

from specsim.figures.style import GLYPHS, HOLLOW, marks_said
from specsim.metrics.seeds import KEPT_UP, OVERLOADED, SATURATED, SHORT, depends_on_length, verdict_of, verdicts, worst

LOADS = {
    KEPT_UP: {"overloaded": False, "saturated": False, "too_short": False},
    SHORT: {"overloaded": None, "saturated": None, "too_short": True},
    SATURATED: {"overloaded": None, "saturated": True, "too_short": True},
    OVERLOADED: {"overloaded": True, "saturated": False, "too_short": False},
}


@pytest.mark.parametrize("verdict", LOADS)
def test_a_load_has_one_verdict(verdict: str) -> None:
    assert verdict_of(LOADS[verdict]) == verdict
    assert depends_on_length(LOADS[verdict]) == (verdict in (SATURATED, OVERLOADED))
    assert (GLYPHS[verdict] == HOLLOW) == depends_on_length(LOADS[verdict])


def test_a_table_has_those_of_its_rows_and_of_several_the_strongest_holds() -> None:
    table = pd.DataFrame(list(LOADS.values()), dtype=object).add_prefix("load.")
    assert list(verdicts(table)) == list(LOADS)
    assert worst(LOADS) == OVERLOADED
    assert worst([SATURATED, SHORT, KEPT_UP]) == SATURATED
    older = table.drop(columns="load.saturated")
    assert list(verdicts(older)) == [KEPT_UP, SHORT, SHORT, OVERLOADED]


def short_runs(attained: list[float], varies: str = "arrivals, acceptance", steady: bool | None = True) -> pd.DataFrame:
    load = {**LOADS[SHORT], "steady": steady, "overloaded": False}
    rows = [{f"load.{key}": value for key, value in load.items()} for _ in attained]
    return pd.DataFrame(rows, dtype=object).assign(point="a", varies_with_seed=varies, slo_attainment=attained)


def test_seeds_that_draw_arrivals_anew_judge_a_point_whose_runs_are_each_too_short() -> None:
    near, apart = [0.80, 0.82, 0.84, 0.82, 0.81], [0.60, 0.82, 0.95, 0.82, 0.81]
    assert set(verdicts(short_runs(near))) == {KEPT_UP}
    assert set(verdicts(short_runs(apart))) == {SHORT}
    assert set(verdicts(short_runs(near[:4]))) == {SHORT}
    assert set(verdicts(short_runs(near, varies="classes, acceptance"))) == {SHORT}
    assert set(verdicts(short_runs(near, steady=None))) == {SHORT}
    both = pd.concat([short_runs(near), short_runs(apart).assign(point="b")], ignore_index=True)
    assert list(verdicts(both)) == [KEPT_UP] * 5 + [SHORT] * 5


def test_a_caption_says_what_a_hollow_point_is() -> None:
    overloaded, saturated, *_ = marks_said([OVERLOADED, SATURATED, SHORT])
    assert overloaded.startswith(f"Hollow {HOLLOW}: a run is overloaded")
    assert saturated.startswith(f"Hollow {HOLLOW}: a run is near saturation")
