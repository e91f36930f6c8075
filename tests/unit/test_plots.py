"""The figures: what stands on their axes and what their curves and bars say; pixels are not compared."""

import subprocess
import sys
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.transforms import Bbox

from specsim.figures.passes import spans, timeline
from specsim.figures.plots import run_figures, save
from specsim.figures.slo import Pairs, calibration, comparison, latency_cdf, slo_by_class
from specsim.figures.style import style
from specsim.metrics.requests import PASS_COLUMNS, RunTotals
from specsim.metrics.summary import summarise
from specsim.metrics.tables import number
from tests.made import refusal, table_of

NAMES = ("chat", "coding", "summarization")
LONG = ("/v1/chat/completions", "/v1/batch/summarize", "/v1/embeddings")
SHORT = " \u25d0"
"""Behind the label of a run that is too short, as are all of 60 requests."""


def run(seed=0, rows=300, names=NAMES):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    arrival_s = np.sort(rng.uniform(0, 100, rows))
    output = rng.integers(1, 40, rows)
    first_s = arrival_s + rng.lognormal(-1, 1, rows)
    finish_s = first_s + (output - 1) * rng.lognormal(np.log(0.035), 0.3, rows)
    rejected = {row: "never fits in memory" for row in range(0, rows, 50)}
    gone = np.isin(np.arange(rows), list(rejected))
    times = {"first_token_s": first_s, "finish_s": finish_s, "first_decode_s": np.where(output > 1, first_s, np.nan)}
    times |= {"longest_pause_s": np.where(output > 1, 0.2, np.nan)}
    counts = {"emitted_tokens": output, "decoded_tokens": output - 1}
    objectives = {"tpot_slo_s": np.array([0.05, 0.036, 0.15])[kind], "ttft_slo_s": np.where(kind == 0, 0.5, np.nan)}
    done = {name: np.where(gone, np.nan, each) for name, each in times.items()}
    done |= {name: np.where(gone, 0, each) for name, each in counts.items()}
    table = table_of(names, rejected, slo_class=kind, arrival_s=arrival_s, **objectives, **done)
    totals = RunTotals(10, 20, 1.0, 1.0, 0.1, 2.0, 1.0, itl_s=np.array([0.1]))
    return SimpleNamespace(metrics=summarise(table, totals), requests=table, passes=None)


def passes(rows=400):
    frame = pd.DataFrame({name: np.zeros(rows) for name in PASS_COLUMNS})
    tokens = {"prefill_tokens": 64, "draft_tokens": 24, "batched_tokens": 64 + 24 + 8, "emitted_tokens": 16}
    return frame.assign(start_s=np.arange(rows) * 0.1, seconds=0.1, kind=1, requests=8, depth=3, **tokens)


def caption(figure):
    return figure.get_supxlabel().replace("\n", " ")


def axis_labels(figure):
    return [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def bar_heights(axes):
    return [[bar.get_height() for bar in group] for group in axes.containers]


def test_names_of_classes_are_drawn_as_they_are(tmp_path):
    """A pair of dollars is no formula, and an underscore keeps nothing out of a legend."""
    names = ("$a$", r"\frac{$x$}", "_b")
    given = run(names=names)
    assert len(save(run_figures(given), tmp_path, ["svg"])) == 2
    for figure in (latency_cdf(given.metrics, given.requests), comparison([("$one$", given.metrics)])):
        assert [text.strip("\u200b") for text in legend_texts(figure)][:3] == list(names)
        with style():
            ticks = figure.axes[0].get_xticklabels()
        texts = [text for legend in figure.legends for text in legend.get_texts()]
        assert not any(text.get_parse_math() for text in [*texts, *ticks])


def test_slo_bars_are_the_metrics():
    given = run()
    figure = slo_by_class(given.metrics)
    assert [label for _, label in axis_labels(figure)] == ["SLO attainment (%)", "SLO goodput (tokens/s)"]
    block = given.metrics["specsim"]
    parts = [*block["classes"].values(), block]
    left, right = figure.axes
    assert bar_heights(left) == [[100 * part["slo_attainment"] for part in parts]]
    assert bar_heights(right) == [[part["slo_goodput_tokens_per_s"] for part in parts]]
    ticks = [label.get_text().replace("\n", "|") for label in left.get_xticklabels()]
    assert ticks == ["chat|TTFT 0.5|TPOT 50", "coding|TTFT none|TPOT 36", "summarization|TTFT none|TPOT 150", "all"]


def test_cdf_meets_its_slo_line_at_the_share_that_meets_it():
    given = run(rows=6000)  # More of a class than a curve has points.
    figure = latency_cdf(given.metrics, given.requests)
    assert axis_labels(figure) == [
        ("Time per output token, TPOT as in vLLM (ms)", "Share of arrived requests (%)"),
        ("Time to first token, TTFT (ms)", ""),
    ]
    assert legend_texts(figure) == [*NAMES, "SLO"]
    long = run(names=LONG)
    assert latency_cdf(long.metrics, long.requests).get_figheight() > figure.get_figheight(), "two lines of a legend"
    left = figure.axes[0]
    curves = {line.get_label(): line for line in left.lines}
    for name, slo_ms in zip(NAMES, (50.0, 36.0, 150.0), strict=True):
        part = given.requests[given.requests["slo_class"] == name]
        met = (part["tpot_s"] <= slo_ms / 1000) | (part["output_tokens"] == 1)
        x, y = curves[name].get_data()
        assert y[np.searchsorted(x, slo_ms, side="right") - 1] == pytest.approx(100 * met.mean())
    dashed = [line.get_xdata()[0] for line in left.lines if line.is_dashed() and len(line.get_xdata())]
    assert sorted(dashed) == pytest.approx([36.0, 50.0, 150.0])
    assert [line.get_xdata()[0] for line in figure.axes[1].lines if line.is_dashed()] == [500.0]


def test_timeline_panels():
    figure = timeline(passes())
    panels = ["Requests|in the pass", "Waiting at|its end", "Tokens per|target pass", "Depth of trees|(tokens)"]
    assert [label.replace("\n", "|") for _, label in axis_labels(figure)] == [*panels, "Emitted|(tokens/s)"]
    assert figure.axes[-1].get_xlabel() == "Simulated time (s)"
    batch, _, tokens, depth, rate = ([patch.get_data() for patch in axes.patches] for axes in figure.axes)
    np.testing.assert_allclose(batch[0].values, 8.0)
    np.testing.assert_allclose(depth[0].values, 3.0)
    assert [steps.values[0] for steps in tokens] == pytest.approx([8.0, 32.0, 96.0])
    assert rate[0].values.mean() == pytest.approx(160.0)


def test_a_pass_that_is_longer_than_a_span_goes_on_in_the_next_and_idle_time_has_no_value():
    """Forty passes of 0.1 s, one of 4 s, an idle second, one of 0.1 s: ten spans of 0.91 s."""
    given = passes(42)
    given.loc[40, ["start_s", "seconds", "requests"]] = 4.0, 4.0, 9.0
    given.loc[41, ["start_s", "requests"]] = 9.0, 1.0
    _, column = spans(given)
    batch = column["requests"]
    assert batch[:4].tolist() == [8.0] * 4
    assert batch[5:9].tolist() == [9.0] * 4, "the long pass runs until 8 s"
    assert batch[9] == pytest.approx(1.0)
    later = given.assign(start_s=given["start_s"].where(given.index < 41, 12.0))
    assert np.isnan(spans(later)[1]["requests"][7:9]).all(), "idle from 8 to 12 s, in spans of 1.21 s"


@pytest.mark.parametrize("count", [1, 3, 11])
def test_comparison_has_a_row_per_run_with_the_marks_of_a_sweep_and_its_caption(count):
    runs = [(f"policy_{place}", run(seed=place, rows=60).metrics) for place in range(count)]
    marks = ["", " \u25cb", *[SHORT] * 9] if count > 1 else [SHORT]
    for overloaded, (_, metrics) in zip((False, True), runs[: count - 1], strict=False):
        metrics["specsim"]["load"] |= {"overloaded": overloaded, "too_short": False}
    figure = comparison(runs, failed=2)
    left, right = figure.axes
    assert axis_labels(figure) == [("SLO attainment (%)", "Run"), ("SLO goodput (tokens/s)", "")]
    named = [label.get_text() for label in left.get_yticklabels()]
    assert named == [label + mark for (label, _), mark in zip(runs, marks, strict=False)]
    assert legend_texts(figure) == [*NAMES, "all"]
    blocks = [metrics["specsim"] for _, metrics in runs]
    for line, name in zip(left.lines, NAMES, strict=True):
        shares = [100 * block["classes"][name]["slo_attainment"] for block in blocks]
        assert line.get_xdata() == pytest.approx(shares)
    assert [bar.get_width() for bar in left.containers[0]] == [100 * block["slo_attainment"] for block in blocks]
    goodputs = [block["slo_goodput_tokens_per_s"] for block in blocks]
    assert [bar.get_x() + bar.get_width() for bar in right.containers[-1]] == pytest.approx(goodputs)
    assert [text.get_text() for text in right.texts] == [f"{goodput:.1f}" for goodput in goodputs]
    figure.draw_without_rendering()
    assert figure._supxlabel.get_window_extent().y0 >= 0
    said = caption(figure)
    assert ("Hollow \u25cb: a run is overloaded" in said) == (count > 1)
    assert "Half-filled \u25d0: a run is too short to judge" in said
    assert f"{marks[:count].count(SHORT)} of {count} runs" in said
    assert f"2 of {count + 2} runs failed and are left out." in said


def test_bad_requests_are_one_line(tmp_path):
    figures = run_figures(run())
    assert "'pgn' is not one of those written; did you mean 'png'?" in refusal(save, figures, tmp_path, ["pgn"])
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal(save, figures, tmp_path / "file")


def test_drawing_leaves_pyplot_and_its_settings_alone():
    script = (
        "import matplotlib, sys; before = matplotlib.rcParams.copy(); import specsim.figures.plots as plots; "
        "from specsim.figures.slo import comparison; "
        "part = {'slo_attainment': 1.0, 'slo_goodput_tokens_per_s': 1.0, 'classes': {}, 'load': {'overloaded': True}}; "
        "comparison([('a', {'specsim': part})]); "
        "assert 'matplotlib.pyplot' not in sys.modules; assert matplotlib.rcParams.copy() == before"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def mark_boxes(figure, axes):
    """Return the box of each mark of a drawn figure, in pixels, its edge included."""
    figure.draw_without_rendering()
    found = []
    for line in axes.lines:
        reach = (line.get_markersize() * (2**0.5 if line.get_marker() == "D" else 1) + line.get_markeredgewidth()) / 2
        pixels = reach * figure.dpi / 72
        found += [Bbox([place - pixels, place + pixels]) for place in axes.transData.transform(line.get_xydata())]
    return found


def test_no_label_of_a_wide_axis_covers_another():
    wide = {"all": Pairs(np.array([70.0, 3e4]), np.array([80.0, 4e4]))}
    figure = calibration({"TPOT": wide, "TTFT": wide})
    figure.canvas.draw()
    words = [text.get_window_extent() for text in figure.axes[1].get_xticklabels()]
    assert not any(one.overlaps(other) for one, other in pairwise(words))


@pytest.mark.parametrize(("share", "names"), [(0.0, NAMES), (0.5, NAMES), (0.9996, NAMES), (1.0, LONG)])
def test_no_label_covers_a_mark_and_no_mark_another(share, names):
    metrics = run(names=names).metrics
    for part in (metrics["specsim"], *metrics["specsim"]["classes"].values()):
        part |= dict.fromkeys(("slo_attainment", "ttft_attainment", "tpot_attainment"), share)
        part["slo_goodput_tokens_per_s"] = 100 * share
    figure = slo_by_class(metrics)
    left, right = figure.axes
    assert right.get_ylim()[0] == 0
    marks = mark_boxes(figure, left)
    assert len(marks) == 2 * (len(NAMES) + 1)
    labels = (*left.texts, *left.get_xticklabels(), left.xaxis.label, *right.get_xticklabels())
    words = [text.get_window_extent() for text in labels]
    assert not any(text.get_rotation() for text in labels)
    assert [text.get_text() for text in left.texts] == [number(share, 100, 1)] * (len(NAMES) + 1)
    assert not any(mark.overlaps(word) for mark in marks for word in words)
    assert not any(one.overlaps(other) for each in (marks, words) for one, other in combinations(each, 2))
