"""The figures of a sweep: which lines stand in which panel, what intervals reach and cover, that nothing overlaps."""

import itertools
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest

from specsim import sweep
from specsim.errors import SpecsimError
from specsim.figures.plots import paper_figure, sweep_figures
from specsim.figures.style import PALETTE
from specsim.figures.sweep import curves
from specsim.files.yaml_file import shipped
from specsim.metrics.seeds import over_seeds, paired_difference
from specsim.metrics.sweep_table import axes_of, selecting, short_names, with_short_names, without_failures
from specsim.metrics.tables import comparison_table
from tests.made import refusal
from tests.unit import test_seeds
from tests.unit.test_plots import caption

CLASSES = ["chat", "coding", "summarization", "all"]


def table(schedulers=("adaserve", "fcfs"), covers="classes, acceptance", **axes):
    frame = test_seeds.table(CLASSES, **{"scheduler": schedulers, "rps": [2, 4, 8]} | axes)
    frame["varies_with_seed"] = covers
    rng = np.random.default_rng(0)
    whole = frame["slo_class"] == "all"
    frame["slo_attainment"] = rng.uniform(0.2, 0.9, len(frame))
    frame["worst_class_attainment"] = np.where(whole, rng.uniform(0, 0.2, len(frame)), np.nan)
    frame["slo_goodput_tokens_per_s"] = rng.uniform(100, 900, len(frame))
    frame["load.saturated"] = None
    frame["load.overloaded"] = np.where(whole, frame.get("rps", pd.Series(0, frame.index)) == 8, None)
    frame["load.too_short"] = np.where(whole, False, None)
    return frame


def drawn(frame, measure="slo_attainment", against=None, **chosen):
    return curves(frame, axes_of(frame, **chosen), measure, against)


def lines_of(axes):
    """Return the means drawn as (x, y) arrays in the order of the lines."""
    return [container.lines[0].get_data() for container in axes.containers]


def reaches(axes):
    """Return (low, high) of each interval, by line."""
    found = []
    for container in axes.containers:
        (bars,) = container.lines[2]
        found.append([(low[1], high[1]) for low, high in bars.get_segments()])
    return found


def test_a_panel_a_class_and_the_worst_with_a_line_a_scheduler_and_intervals_up_to_what_the_measure_can_be():
    figure = drawn(frame := table())
    assert "failed" not in caption(figure)
    assert [axes.get_title() for axes in figure.axes] == [*CLASSES[:3], "all classes", "worst class"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"Request rate (requests/s)"}
    assert [axes.get_ylabel() for axes in figure.axes] == ["SLO attainment (%)", "", "", "SLO attainment (%)", ""]
    assert len(drawn(frame[frame["slo_class"].isin(["chat", "all"])]).axes) == 1
    means = over_seeds(frame, "slo_attainment", ["slo_class", "scheduler", "rps"])
    for axes, name in zip(figure.axes, CLASSES, strict=False):
        for (x, y), scheduler in zip(lines_of(axes), ("adaserve", "fcfs"), strict=True):
            line = means[(means["slo_class"] == name) & (means["scheduler"] == scheduler)]
            assert list(x) == [2, 4, 8]
            assert list(y) == pytest.approx(list(100 * line["mean"]))
    assert all(0 <= low <= high <= 100 for axes in figure.axes for low, high in itertools.chain(*reaches(axes)))
    whole = frame[frame["slo_class"] == "all"].groupby(["scheduler", "rps"])["worst_class_attainment"].mean()
    assert np.concatenate([y for _, y in lines_of(figure.axes[-1])]) == pytest.approx(100 * whole.to_numpy())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["adaserve", "fcfs"]
    assert legend.get_title().get_text() == "scheduler"
    means = over_seeds(frame, "slo_goodput_tokens_per_s", ["slo_class", "scheduler", "rps"])
    means = means[(means["slo_class"] == "chat") & (means["scheduler"] == "adaserve")]
    (first, *_) = reaches(drawn(frame, "slo_goodput_tokens_per_s").axes[0])
    assert [high for _, high in first] == pytest.approx(list(means["mean"] + means["half_width"]))


def test_differences_are_paired_by_seed():
    frame = table(("adaserve", "fcfs", "vtc"))
    figure = drawn(frame, "slo_attainment", "fcfs")
    pairs = paired_difference(frame, "slo_attainment", "fcfs", ["slo_class", "rps"])
    pairs = pairs[(pairs["slo_class"] == "coding") & (pairs["scheduler"] == "vtc")]
    adaserve, vtc = lines_of(figure.axes[1])
    assert list(vtc[1]) == pytest.approx(list(100 * pairs["mean"]))
    assert figure.axes[0].get_ylabel() == "SLO attainment (points)\nminus fcfs"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["adaserve", "vtc"]
    assert "paired by seed: means over 5 seeds with 95% intervals, which cover classes" in caption(figure)
    assert len(adaserve[0]) == 3
    assert "A point has the stronger mark of its two runs. Markers of one rps stand side by side." in caption(figure)


COVER = "over 5 seeds with 95% intervals, which cover"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"{COVER} classes and acceptance. Arrivals and lengths are the trace's own under every seed."),
        ({"covers": "arrivals, lengths, classes, acceptance"}, f"{COVER} arrivals, lengths, classes and acceptance."),
        ({"seed": [0]}, "one seed: no interval"),
        ({"seed": [0, 1]}, "Means over 2 seeds, too few for an interval."),
    ],
)
def test_a_figure_says_what_its_intervals_cover(given, said):
    figure = drawn(table(**given))
    assert said in caption(figure)
    assert ("the trace's own" in caption(figure)) == (given == {})
    spans = [high - low for axes in figure.axes for low, high in itertools.chain(*reaches(axes))]
    assert any(spans) == ("seed" not in given)


def test_a_measure_that_classes_lack_has_one_panel_with_its_unit():
    whole = (frame := table())["slo_class"] == "all"
    for value, said in ((1.0, f"{COVER} classes and acceptance."), (np.nan, "No run has a value.")):
        figure = drawn(frame.assign(output_throughput=np.where(whole, value, np.nan)), "output_throughput")
        assert [axes.get_ylabel() for axes in figure.axes] == ["Output throughput (tokens/s)"]
        assert said in caption(figure)


def marked(axes):
    """Return the x of marked points by fill: those of each line."""
    white = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    half = [line for line in axes.lines if line.get_fillstyle() == "left"]
    return {name: [list(line.get_xdata()) for line in lines] for name, lines in (("hollow", white), ("half", half))}


def test_a_point_that_is_too_short_to_judge_is_neither_full_nor_hollow():
    """Whether it is overloaded cannot be told then, as of a real run."""
    frame = table()
    frame.loc[frame["slo_class"] == "all", ["load.overloaded", "load.too_short"]] = None, True
    frame["load.saturated"] = frame["rps"] == 8
    figure = drawn(frame)
    for axes in figure.axes:
        assert marked(axes) == {"hollow": [[8], [8]], "half": [[2, 4], [2, 4]]}
    assert "Half-filled \u25d0: a run is too short to judge" in caption(figure)
    assert "30 of 30 runs are too short" in caption(figure)


def of_all(**axes):
    """Return the rows of `table` of all classes together."""
    return (frame := table(**axes))[frame["slo_class"] == "all"]


def test_a_set_of_figures_for_each_value_of_the_rest():
    figures = sweep_figures(frame := of_all(slo_scale=[0.8, 1.2]), axes_of(frame))
    names = ("attainment", "attainment_difference", "goodput", "goodput_difference")
    assert set(figures) == {f"{name},slo_scale={scale}" for name in names for scale in ("0.8", "1.2")}
    assert figures["attainment,slo_scale=0.8"].legends[0].get_title().get_text() == "scheduler, with slo_scale = 0.8"
    frame = with_short_names(of_all(**{"scheduler.read.mine": ["0" * 64, "1" * 64]}))
    assert "attainment,scheduler.read.mine=11111111" in sweep_figures(frame, axes_of(frame))


def test_differences_are_from_the_best_unless_another_is_named():
    frame = of_all(schedulers=("adaserve", "fcfs", "vtc"))
    frame.loc[frame["scheduler"] == "vtc", "slo_attainment"] = 0.95
    axes = axes_of(frame)
    assert "minus vtc" in sweep_figures(frame, axes)["goodput_difference"].axes[0].get_ylabel()
    assert "minus fcfs" in sweep_figures(frame, axes, "fcfs")["goodput_difference"].axes[0].get_ylabel()
    with pytest.raises(SpecsimError, match=r"against=vtcc: .*'vtc'"):
        sweep_figures(frame, axes, "vtcc")


def test_where_a_line_has_no_partner_no_difference_is_drawn():
    frame = of_all(schedulers=("adaserve", "fcfs", "vtc"))
    frame = frame[~((frame["scheduler"] == "fcfs") & (frame["rps"] == 8))]
    figure = drawn(frame, "slo_attainment", "fcfs")
    assert {tuple(x) for axes in figure.axes for x, _ in lines_of(axes)} == {(2, 4)}
    frame = frame[~((frame["scheduler"] == "vtc") & (frame["rps"] == 2))]
    assert [tuple(x) for x, _ in lines_of(drawn(frame, "slo_attainment", "adaserve").axes[0])] == [(2, 4), (4, 8)]
    frame = frame.query("(scheduler != 'fcfs' or rps == 4) and (scheduler != 'vtc' or rps == 8)")
    text = paper_figure(frame, axes_of(frame), against="fcfs").figure.axes[0].texts
    assert [each.get_text() for each in text] == ["adaserve"]
    assert {*sweep_figures(frame[frame["scheduler"] != "adaserve"], axes_of(frame))} == {"attainment", "goodput"}


def bringing(key, of, **axes):
    """Return the rows of a sweep in which each value of a choice brings a value of a key."""
    frame = table(**{"schedulers": ["fcfs"], of: ["a", "b"]} | axes)
    frame.insert(0, key, frame[of].map({"a": 10, "b": 20} if "." in key else {"a": "c", "b": "d"}))
    return frame


AXES = {
    "rate before scale": (table(slo_scale=[0.8, 1.2]), {}, ("rps", "scheduler", ("slo_scale",))),
    "another number": (table(rps=[2], replicas=[1, 2]), {}, ("replicas", "scheduler", ())),
    "a rate that is not given": (table(rps=[2, None]), {}, (None, "scheduler", ("rps",))),
    "chosen": (table(slo_scale=[0.8, 1.2]), {"x": "slo_scale", "line": "rps"}, ("slo_scale", "rps", ("scheduler",))),
    **{
        f"{key} with {of}, a line a {line}": (bringing(key, of, **axes), {}, (x, line, rest))
        for key, of, axes, x, line, rest in (
            ("acceptance", "drafter", {}, "rps", "drafter", ()),
            ("acceptance", "drafter", {"schedulers": ["fcfs", "vtc"]}, "rps", "scheduler", ("drafter",)),
            ("scheduler.verify_tokens", "profile", {"rps": [2]}, None, "profile", ()),
        )
    },
    "nothing": (table(["fcfs"], rps=[2]), {}, (None, "scheduler", ())),
}


@pytest.mark.parametrize(("frame", "chosen", "expected"), AXES.values(), ids=AXES)
def test_what_a_sweep_is_drawn_against(frame, chosen, expected):
    frame = frame[[*sorted(set(frame.columns) & {"replicas", "slo_scale"}), *frame.columns]]
    frame = frame.loc[:, ~frame.columns.duplicated()]
    found = axes_of(frame, **chosen)
    assert (found.x, found.line, found.rest) == expected


@pytest.mark.parametrize(("layout", "count"), [("lines", 24), ("differences", 7), ("rows", 24), ("goodput", 1)])
def test_nothing_overlaps_and_all_stands_on_the_page(layout, count):
    names = ["adaserve", "fcfs", "smartspec_per_request", "a_policy_of_mine_with_a_rather_long_name", "vtc", "stta"]
    schedulers = [f"{names[place % 6]}_{place}" for place in range(count)]
    frame = table(schedulers, rps=[4] if layout == "rows" else [1, 2, 4, 8, 16, 32])
    against = schedulers[0] if layout == "differences" else None
    figure = drawn(frame, "slo_goodput_tokens_per_s" if layout == "goodput" else "slo_attainment", against)
    figure.draw_without_rendering()
    found = [axes.get_tightbbox() for axes in figure.axes] + [legend.get_window_extent() for legend in figure.legends]
    found.append(figure._supxlabel.get_window_extent())
    width, height = figure.bbox.size
    for one, other in combinations(found, 2):
        overlap = (min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0))
        assert min(overlap) <= 2, "two parts of the figure overlap"
    assert all(-2 <= box.x0 <= box.x1 <= width + 2 for box in found)
    assert all(-2 <= box.y0 <= box.y1 <= height + 2 for box in found)
    for axes in figure.axes:
        across = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert all(left.x1 <= right.x0 for left, right in pairwise(across))
        assert axes.get_window_extent().height >= 60, "a panel is squeezed"


@pytest.fixture(scope="module")
def runs():
    axes = {"scheduler": ["fcfs", "continuous"], "rps": [2, 8, 20], "seed": range(5)}
    return sweep(axes, trace="poisson", requests=20)


def test_the_lines_of_a_paper_s_figure_are_means_over_seeds_and_have_names_of_one_s_own(runs):
    figure, text = runs.figure(names={"fcfs": "first come"})
    assert [axes.get_ylabel() for axes in figure.axes] == ["SLO attainment (%)", "SLO goodput (tokens/s)"]
    for axes, measure, scale in zip(figure.axes, ("slo_attainment", "slo_goodput_tokens_per_s"), (100, 1), strict=True):
        means = runs.means(measure).query("slo_class == 'all'").set_index(["scheduler", "rps"])
        for line, name in zip(axes.containers, ("fcfs", "continuous"), strict=True):
            expected = scale * means.loc[name, "mean"]
            np.testing.assert_allclose(line.lines[0].get_xydata(), np.stack((expected.index, expected), axis=1))
        assert {text.get_text() for text in axes.texts} == {"continuous", "first come"}
        assert not figure.legends
        apart = [line.lines[0].get_transform().transform((2, 0))[0] for line in axes.containers]
        assert apart[1] - apart[0] == pytest.approx(2.4 * figure.dpi / 72), "intervals side by side"
    names = {"fcfs": "first come", "of another figure": "other", "continuous": "continuous"}
    (line,) = runs.select(scheduler="continuous").figure("slo_attainment", names=names).figure.axes[0].containers
    assert line.lines[0].get_color() == PALETTE[2]
    assert (figure.get_supxlabel(), text[:10]) == ("", "Means over")
    names = {"fcfs": "first come, first served, as in a queue", "continuous": "a_policy_with_a_name"}
    figure = runs.figure("mean_ttft_s", "p99_e2el_s", names=names).figure
    assert [axes.get_ylabel() for axes in figure.axes] == ["Mean TTFT (s)", "P99 E2E latency (s)"]
    figure.draw_without_rendering()
    for axes in figure.axes:
        one, other = (text.get_window_extent() for text in axes.texts)
        assert min(one.y1, other.y1) - max(one.y0, other.y0) <= 2, "names overlap"
        assert max(one.x1, other.x1) < axes.get_window_extent().x1 + 4


def test_bands_are_the_intervals_of_paired_differences(runs):
    figure = runs.figure(against="fcfs", columns=1, names={"fcfs": "first come, first served, as in a queue"}).figure
    (axes,) = figure.axes
    paired = runs.paired(against="fcfs").query("slo_class == 'all' and scheduler == 'continuous'")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * paired["mean"])
    middle, reach = 100 * paired["mean"], 100 * paired["half_width"]
    ends = (middle - reach).clip(lower=-100).min(), (middle + reach).clip(upper=100).max(), 3.35
    assert (*axes.collections[0].get_datalim(axes.transData).intervaly, figure.get_figwidth()) == pytest.approx(ends)
    assert axes.get_ylabel().endswith("\nminus first come, first\nserved, as in a queue")
    (zero,) = axes.collections[1].get_segments()
    assert zero.tolist() == [[2, 0], [20, 0]], "no line strikes through the names"


def test_a_paper_s_figures_are_few_files_with_their_captions(runs, tmp_path):
    files = runs.plot(tmp_path, style="paper")
    assert [each.name for each in files] == ["attainment.pdf", "difference.pdf", "captions.txt"]
    assert [line.partition(":")[0] for line in files[-1].read_text().splitlines()] == ["attainment", "difference"]
    assert runs.figure().savefig(tmp_path / "mine.png", dpi=50) is None
    assert "style='print': expected screen or paper" in refusal(runs.plot, tmp_path, style="print")


def test_a_file_is_called_by_its_stem_with_its_folder_where_another_is_called_so():
    alone = {"./a.yaml": "a", "/x/y/b.yaml": "y/b", "z/b.yaml": "z/b", "0.8": "0.8", "vllm": "vllm"}
    alone |= {"0123abcd" * 8: "0123abcd", "e" * 64: "e" * 64, f"{'e' * 63}f": f"{'e' * 63}f"}
    assert short_names([*alone, "./c.yaml", "c", None]) == {**alone, "./c.yaml": "./c.yaml", "c": "c"}
    table = comparison_table([({"slo.classes.chat.share": 0.4, "slo.classes.code.share": 0.6, "s.rps": 2}, None)])
    assert table.split()[:3] == ["chat.share", "code.share", "rps"]
    path = str(shipped("conf") / "scheduler" / "fcfs.yaml")
    runs = sweep({"scheduler": [path, "vllm"], "rps": [2, 4]}, trace="poisson", requests=4)
    assert [each.get_text() for each in runs.curves().legends[0].get_texts()] == ["fcfs", "vllm"]
    assert "minus fcfs" in runs.curves(against="fcfs").axes[0].get_ylabel()


def test_what_cannot_be_shown_is_refused(runs):
    assert "figure: the runs differ in no number" in refusal(lambda: runs.select(rps=2).figure())
    assert "figure: names=fcf: no such line; did you mean 'fcfs'" in refusal(runs.figure, names={"fcf": "first come"})
    assert "figure: names=['fcfs']: expected a text by" in refusal(runs.figure, names=["fcfs"])
    assert "figure: of=chatt: slo_attainment is of no such class" in refusal(runs.figure, of="chatt")
    assert runs.figure(of="worst").caption.startswith("Requests of worst. Means")
    said = refusal(runs.figure, "mean_ttft_s", of="worst")
    assert said.endswith("mean_ttft_s is of no such class; valid: all, chat, coding, summarization")
    names = ["fcfs", "continuous", "vllm_spec", "sarathi", "priority", "vtc", "fastserve"]
    too_many = sweep({"scheduler": names, "rps": [2, 4]}, trace="poisson", requests=4)
    assert "figure: 7 lines of scheduler; expected 6 or fewer" in refusal(too_many.figure)
    many = sweep({"rps": [2, 4], "slo_scale": [1, 2], "scheduler": ["fcfs", "vtc"]}, trace="poisson", requests=4)
    assert "figure: the runs differ in slo_scale, too; expected select(slo_scale=..)" in refusal(many.figure)
    assert selecting("slo.classes.my-class.share") == "select(**{'slo.classes.my-class.share': ..})"
    figure, text = many.select(scheduler="fcfs").figure(x="rps", line="slo_scale")
    assert (figure.get_suptitle(), text[:27]) == ("Lines by TPOT SLO scale (x)", "Lines differ in slo_scale. ")


def test_what_goes_along_with_a_scheduler_makes_no_figure_of_its_own():
    frame = table()
    frame.insert(0, "acceptance", np.where(frame["scheduler"] == "fcfs", "own", "common"))
    axes = axes_of(frame)
    assert (axes.rest, axes.along) == ((), ("acceptance",))
    assert "along with scheduler: acceptance" in caption(curves(frame, axes))
    told = {"profile": "llama8b_1b_h100", "engine": "ideal", "slo_scale": 0.8, "ttft_scale": 1.0, "concurrency": 1}
    said = caption(curves(frame[["run", "rps"]].assign(**told).join(frame.drop(columns=["run", "rps"])), axes))
    assert "Profile llama8b_1b_h100, engine ideal, slo_scale 0.8, concurrency 1. " in said
    frame.insert(0, "slo.classes.chat.share", 1 - frame["rps"] / 10)
    axes, one = axes_of(frame), axes_of(frame.query("scheduler == 'fcfs'"))
    assert (axes.rest, axes.along, axes.along_x, one.line) == ((), ("acceptance",), (frame.columns[0],), "scheduler")
    assert "differs along with rps: slo.classes.chat.share." in caption(curves(frame, axes))
    frame.insert(0, "slo_scale", np.where(frame["scheduler"] == "fcfs", 0.8, 1.2))
    assert axes_of(frame).rest == ("slo_scale",)


def test_failed_runs_are_counted_in_the_caption_and_not_drawn():
    """A run that failed has one row, without metrics."""
    frame = table(seed=[0])
    its = (frame["scheduler"] == "adaserve") & (frame["rps"] == 2)
    frame["error"] = np.where(its, "no memory", None)
    frame.loc[its, [name for name in frame if name.startswith(("slo_a", "slo_g", "worst", "load"))]] = np.nan
    frame = frame[~its | (frame["slo_class"] == "all")]
    failed = curves(frame, axes_of(without_failures(frame)))
    assert "1 of 6 runs failed and is left out." in caption(failed)
    assert [list(x) for x, _ in lines_of(failed.axes[0])] == [[4, 8], [2, 4, 8]]
    frame.insert(0, "k", its.map({True: 4, False: 2}))
    text = paper_figure(frame.query("scheduler == 'fcfs' or rps == 2"), axes_of(table())).caption
    assert text.endswith(" is left out. Every run of scheduler adaserve failed. Every run of k 4 failed.")
