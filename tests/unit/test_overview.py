"""Attainment and goodput side by side: the lines are the means, and each has its name."""

import numpy as np
import pytest

from specsim import SpecsimError, sweep


@pytest.fixture(scope="module")
def runs():
    axes = {"scheduler": ["fcfs", "continuous"], "rps": [2, 8, 20], "seed": range(2)}
    return sweep(axes, trace="poisson", requests=20)


def test_the_lines_are_means_over_seeds_and_are_named(runs):
    figure = runs.overview()
    assert [axes.get_ylabel() for axes in figure.axes] == ["SLO attainment (%)", "SLO goodput (tokens/s)"]
    for axes, measure, scale in zip(figure.axes, ("slo_attainment", "slo_goodput_tokens_per_s"), (100, 1), strict=True):
        means = runs.means(measure).query("slo_class == 'all'").set_index(["scheduler", "rps"])
        for line, name in zip(axes.containers, ("continuous", "fcfs"), strict=True):
            expected = scale * means.loc[name, "mean"]
            np.testing.assert_allclose(line.lines[0].get_xydata(), np.stack((expected.index, expected), axis=1))
        assert {text.get_text() for text in axes.texts} == {"continuous", "fcfs"}
        assert not figure.legends


def test_marks_and_caption_are_those_of_the_curves(runs):
    overview, curves = runs.overview(), runs.curves()
    caption = overview._supxlabel.get_text()
    assert caption == curves._supxlabel.get_text()
    assert "2 seeds with 95% intervals" in caption
    assert "runs are too short" in caption
    (all_classes,) = (axes for axes in curves.axes if axes.get_title() == "all classes")
    for panel in overview.axes:
        assert [fills(panel, name) for name in ("continuous", "fcfs")] == [
            fills(all_classes, name) for name in ("continuous", "fcfs")
        ]
        assert fills(panel, "fcfs")


def fills(axes, name):
    """Return (x, fill, face) of each marked point of a line."""
    line = axes.containers[("continuous", "fcfs").index(name)].lines[0]
    marks = [each for each in axes.lines if each.get_color() == line.get_color() and each.get_linestyle() == "None"]
    return sorted(
        (x, each.get_fillstyle(), "white" if each.get_markerfacecolor() == "white" else "ink")
        for each in marks
        for x in each.get_xdata()
    )


def test_names_at_the_ends_do_not_touch(runs):
    figure = runs.overview()
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
        assert low.y1 <= high.y0 + 0.5 * (high.y1 - high.y0)
        assert all(box.x1 <= figure.bbox.x1 for box in (low, high))


def test_what_cannot_be_shown_is_refused(runs):
    with pytest.raises(SpecsimError, match="overview: the runs differ in no number"):
        runs.select(rps=2).overview()
    names = ["fcfs", "continuous", "vllm_spec", "sarathi", "priority", "vtc", "fastserve"]
    with pytest.raises(SpecsimError, match="overview: 7 lines of scheduler; expected 6 or fewer"):
        sweep({"scheduler": names, "rps": [2, 4]}, trace="poisson", requests=4).overview()
    with pytest.raises(SpecsimError, match=r"overview: the runs differ in slo_scale, too; expected select"):
        sweep(
            {"rps": [2, 4], "slo_scale": [1, 2], "scheduler": ["fcfs", "vtc"]}, trace="poisson", requests=4
        ).overview()


def test_intervals_end_at_what_the_measure_can_be(runs):
    share, goodput = runs.overview().axes
    for panel, most in ((share, 100), (goodput, np.inf)):
        for line in panel.containers:
            (bars,) = line.lines[2]
            ends = np.concatenate([segment[:, 1] for segment in bars.get_segments()])
            assert 0 <= ends.min() <= ends.max() <= most
