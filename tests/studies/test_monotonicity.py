"""The study of docs/anomalies.md: what its sweeps span, what counts as an anomaly, and the page behind its rows."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from specsim import simulate
from specsim.acceptance.curves import Acceptance, Curve
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.profile import load_profile
from studies.monotonicity import page
from studies.monotonicity.__main__ import KEPT, PAGE
from studies.monotonicity.compared import compared
from studies.monotonicity.study import BETTER, COLUMNS, HERE, KNOBS, TOLD, Knob, measures, spanned
from studies.report import kept
from tests.made import refusal

ROOT = shipped("conf").parent
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
PROFILE = load_profile("llama70b_1b_4xa100")
MEMORY, GPU, ACCEPTANCE, DRAFTER = KNOBS


def test_the_page_holds_what_its_rows_say():
    rows = kept(ROOT / KEPT)
    assert page.page(rows, compared(rows)) == TEXT


@pytest.mark.parametrize(
    ("knob", "models"), [(GPU, ("target", "draft")), (DRAFTER, ("draft",))], ids=["gpu", "drafter"]
)
def test_faster_is_every_second_of_a_pass_divided(knob, models):
    expected = {}
    for model in models:
        stated = read_yaml(ROOT / "conf/profile/llama70b_1b_4xa100.yaml")[model]
        seconds = {"overhead_s": stated["overhead_s"]}
        coefficients = stated["forms"]["roofline"].items()
        seconds |= {f"forms.roofline.{name}": value for name, value in coefficients if name.endswith("_s")}
        expected |= {f"profile.{model}.{name}": value for name, value in seconds.items()}
    assert spanned(knob).keys() == expected.keys()
    for key, values in spanned(knob).items():
        factors = [float(level.removesuffix("x")) for level in knob.levels]
        assert values == pytest.approx([expected[key] / factor for factor in factors], rel=1e-5)


def test_memory_holds_the_tokens_that_its_levels_name():
    token_bytes = PROFILE.target.kv_bytes_per_token + PROFILE.draft.kv_bytes_per_token
    weights_bytes = PROFILE.target.weights_bytes + PROFILE.draft.weights_bytes
    tokens = [(0.9 * each - weights_bytes) / token_bytes for each in spanned(MEMORY)[MEMORY.key]]
    assert tokens == pytest.approx([1e3 * float(level.partition("k")[0]) for level in MEMORY.levels], rel=1e-6)


def test_a_better_draft_is_right_wherever_a_worse_one_is():
    stated = read_yaml(ROOT / "conf/acceptance/llama70b_1b.yaml")
    curve, rows = stated["categories"]["default"], np.arange(20)
    right = []
    for agreement in spanned(ACCEPTANCE)[ACCEPTANCE.key]:
        drawn_from = {"default": Curve(**{**curve, "agreement": agreement})}
        law = Acceptance(drawn_from, stated["width"], stated["levels"])
        right.append(law.acceptance_trace(["chat"], np.zeros(20, dtype=np.int64), rows, 0).rank == 0)
    for worse, better in pairwise(right):
        assert (better[worse]).all()
        assert better.sum() > worse.sum()


def rows_of(knob: Knob, values: dict[str, list[float]], measure: str = "mean_e2el_s") -> pd.DataFrame:
    """Return rows of `fcfs` in which one measure has these values by seed at each level, and the others are 1."""
    others = {name: 1.0 for name in (*BETTER, *TOLD)}
    return pd.DataFrame(
        {"knob": knob.name, "level": level, "scheduler": "fcfs", "rps": 4, "seed": seed, **others, measure: value}
        for level, each in values.items()
        for seed, value in enumerate(each)
    )


def worse(rows: pd.DataFrame) -> list[tuple[str, str]]:
    found = compared(rows)
    return [(one.weak, one.strong) for one in found[found["worse"]].itertuples()]


WEAK, MIDDLE, STRONG = MEMORY.levels


def test_an_anomaly_by_hand():
    """E2E of 10 s on average rises by 1, 2 and 3 s, seed by seed: 20% +- 4.303 x 10% / sqrt(3)."""
    rows = rows_of(MEMORY, {WEAK: [1, 9, 20], MIDDLE: [0, 8, 19], STRONG: [2, 11, 23]})
    found = compared(rows).set_index(["measure", "weak", "strong"]).loc[("mean_e2el_s", WEAK, STRONG)]
    assert (found["harm"], found["half_width"]) == pytest.approx((0.2, 4.3027 * 0.1 / 3**0.5), rel=1e-4)
    assert (found["p"], found["single"]) == (pytest.approx(0.0742, abs=1e-4), 1.0)
    assert worse(rows) == [(MIDDLE, STRONG)]


@pytest.mark.parametrize(("measure", "to"), [("mean_e2el_s", 10.09), ("slo_attainment", 9.991)])
def test_a_harm_below_one_percent_or_one_point_is_none(measure, to):
    """Attainment falls from 10 by 0.009, which is less than one point of all requests."""
    assert not worse(rows_of(MEMORY, {WEAK: [10] * 3, MIDDLE: [10] * 3, STRONG: [to] * 3}, measure))
    further = 10 + 2 * (to - 10)
    assert len(worse(rows_of(MEMORY, {WEAK: [10] * 3, MIDDLE: [10] * 3, STRONG: [further] * 3}, measure))) == 2


def test_the_rows_are_the_runs_of_the_sweeps(monkeypatch, tmp_path):
    """From a table of all runs, each once, with what the sweeps set of each, in another order."""
    rows = kept(ROOT / KEPT)
    base = {key: values[knob.base] for knob in KNOBS for key, values in spanned(knob).items()}
    parts = [
        rows[(rows["knob"] == knob.name) & (rows["level"] == level)].assign(
            slo_class="all", **{**base, **{key: values[place] for key, values in spanned(knob).items()}}
        )
        for knob in KNOBS
        for place, level in enumerate(knob.levels)
        if knob is MEMORY or place != knob.base
    ]
    table = pd.concat(parts, ignore_index=True).drop(columns=["knob", "level"]).sample(frac=1.0, random_state=0)
    pd.testing.assert_frame_equal(measures(table), rows)
    assert TEXT.count(f"{len(table):,} runs") == 1
    one_less = table.drop(table.index[(table[GPU.key] == spanned(GPU)[GPU.key][-1]).argmax()])
    assert "gpu 2x: 287 runs of 288" in refusal(measures, one_less)
    monkeypatch.chdir(tmp_path)
    assert "expected the working folder to be the repository's root" in refusal(kept, KEPT)
    assert list(rows) == list(COLUMNS)


def test_a_limit_of_seats_takes_back_what_memory_costs():
    run = read_yaml(HERE / "memory.yaml")["run"]
    run["rps"], run["seed"] = 8, 0

    def mean_s(memory: int, slots: int) -> str:
        each = {**run, MEMORY.key: spanned(MEMORY)[MEMORY.key][memory], "scheduler.max_num_seqs": slots}
        settings = {key.replace(".", "__"): value for key, value in each.items()}
        return f"{simulate('vllm_spec', **settings).metrics['mean_e2el_ms'] / 1e3:.1f}"

    assert {"limited": mean_s(-1, 32), "unlimited": mean_s(-1, 128), "short": mean_s(0, 128)} == page.MAX_NUM_SEQS
