"""`specsim report`: a page with the run's own numbers, drawn and filtered in a real browser without an error."""

import json
import re
import runpy
import shutil
import subprocess
from importlib.util import find_spec

import pandas as pd
import pytest

from specsim import Sweep, load_run, load_sweep, simulate, sweep
from specsim.cli import main
from specsim.metrics.sweep_table import SweepAxes, axes_of
from specsim.metrics.tables import load_of
from tests.files import block, commands, page
from tests.unit import test_sweep_figures

NEEDS = ("altair", "jinja2", "vl_convert")
pytestmark = pytest.mark.skipif(not all(map(find_spec, NEEDS)), reason="needs specsim[report]")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """<script>
const said = [];
addEventListener("error", event => said.push(`${event.message ?? event.target.outerHTML}`), true);
addEventListener("unhandledrejection", event => said.push(`${event.reason}`));
addEventListener("securitypolicyviolation", event => said.push(`outside: ${event.blockedURI}`));
const shown = () => document.querySelectorAll("svg path[aria-roledescription]").length
const rows = () => document.querySelectorAll("tr[data-keys]:not([hidden])").length
addEventListener("load", async () => {
  const drawn = () => document.body.dataset.drawn;
  while (!drawn()) await new Promise(done => setTimeout(done, 50));
  const before = [shown(), rows()], wide = document.documentElement.scrollWidth - innerWidth;
  document.querySelector("button[data-parameter^=hidden]").click();
  await new Promise(done => setTimeout(done, 500));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  parent.postMessage({said, drawn: Number(drawn()), wide, dark, before, after: [shown(), rows()]}, "*");
});
</script>"""
FRAME = """<body><iframe src="probed.html" style="width: {width}px; height: 900px"></iframe><script>
addEventListener("message", event => {{ document.body.dataset.seen = JSON.stringify(event.data); }});
</script></body>"""
"""No window of chromium's is narrower than 500 pixels; a frame in it is."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("reports")
    simulate("vllm_spec", "poisson", rps=40, requests=80, passes=True, out=root / "run")
    axes = {"scheduler": ["vllm", "vllm_spec"], "rps": [5, 40], "seed": [0, 1]}
    sweep(axes, trace="poisson", requests=60, out=root / "sweep", progress=False)
    found = {name: root / f"{name}.html" for name in ("run", "sweep")}
    assert [main(["report", str(root / name), "--out", str(file)]) for name, file in found.items()] == [0, 0]
    return found


def specs_in(file):
    return json.loads(re.search(r"const specs = (.*);\n", file.read_text())[1])


def values_in(spec):
    return next(iter(spec["datasets"].values())) if "datasets" in spec else spec["data"]["values"]


def test_a_run_s_page_has_its_numbers(pages):
    run, text = load_run(pages["run"].parent / "run"), pages["run"].read_text()
    block = run.metrics["specsim"]
    assert f"vllm_spec meets the objectives of {block['slo_attainment']:.1%} of 80 requests of poisson" in text
    attained, ttft, _, timeline, missed, time = specs_in(pages["run"]).values()
    assert {row["slo_class"]: row["slo"] for row in values_in(attained)}["all"] == 100 * block["slo_attainment"]
    assert {row["share"] for row in values_in(ttft) if row.get("ms") == 2000.0} == {100.0}, "at the objective"
    shares = sum(row["share"] for row in values_in(missed) if row["slo_class"] == "all")
    assert 0 < shares == pytest.approx(100 * (~run.requests["slo_ok"]).mean())
    assert sum(row["share"] for row in values_in(time)) == pytest.approx(100)
    last = run.passes.query("kind == 1").eval("start_s + seconds").max()
    assert (len(timeline["vconcat"]), values_in(timeline)[-1]["s"]) == (6, last)


def test_a_sweep_s_page_has_its_means_and_says_which_attains_most(pages):
    from specsim.figures import report  # It imports altair, which takes seconds.

    runs, text = load_sweep(pages["sweep"].parent / "sweep"), pages["sweep"].read_text()
    (best,) = {each["winner"] for each in runs.winners(by=["rps"]).to_dict("records") if each["rps"] == 40}
    assert f"The largest lead is that of {best} at rps = 40" in text
    shown = report._points(runs, SweepAxes("rps", "scheduler", (), ())).table.rows
    assert [row[-1] for row in shown] == [load_of(each) for each in runs.over_seeds().to_dict("records")]
    won, attainment, *_ = specs_in(pages["sweep"]).values()
    assert all((cell["said"] == "100") == (cell["mean"] == 100) for cell in values_in(won))
    means = runs.means(by=["slo_class", "scheduler", "rps"]).query("slo_class == 'all'").to_dict("records")
    drawn = [each for each in values_in(attainment) if each["requests of"] == "all classes"]
    shown = {(each["line"], each["x"]): each["mean"] for each in drawn}
    assert shown == {(each["scheduler"], each["rps"]): 100 * each["mean"] for each in means}
    ends = [f"{shown['vllm', rps]:.1f}% at rps = {rps}" for rps in (5, 40)]
    _, said, _ = report.sweep_page(runs.select(scheduler="vllm"))
    assert said == [f"The runs meet the objectives of {' to '.join(ends)} of the requests."]
    frame = test_sweep_figures.table()
    frame["load.overloaded"] &= frame["scheduler"] == "adaserve"
    (curves,) = report._curves(frame.assign(slo_attainment=0.5), axes_of(frame), {"adaserve": "", "fcfs": ""}, [])
    marks = [{each["load"] for each in values_in(of.spec) if each["x"] == 8} for of in curves.charts]
    assert marks == [{"kept up", "overloaded"}] * 2 + [{"overloaded"}], "a difference has the stronger mark of its two"


def test_the_page_of_an_incomplete_grid_has_differences_where_both_ran(tmp_path):
    small, seeds = {"trace": "poisson", "requests": 20, "progress": False}, {"seed": [0, 1]}
    runs = [*sweep({"scheduler": ["vllm", "vllm_spec"], "rps": [2, 4], **seeds}, **small)]
    runs += sweep({"slo_scale": [1.3], **seeds}, scheduler="vllm", rps=2, **small)
    file = Sweep(runs).report(tmp_path / "page.html")
    assert re.search("No run has a partner of vllm(_spec)? at slo_scale = 1.3.", file.read_text())
    assert "Several attain most: 100.0% at rps = 2, slo_scale = 1." in file.read_text(), "at points of both"
    _, attainment, _, apart, *_ = specs_in(file).values()
    assert [{each["slo_scale"] for each in values_in(spec)} for spec in (attainment, apart)] == [{"1", "1.3"}, {"1"}]
    unset = {"scheduler": "vllm_spec", "rps": 40, **small}
    sweep({"acceptance_scale": [None, 0.3], **seeds}, **unset).report(file)
    assert "Attainment less that of acceptance_scale = 0.3, paired by seed" in file.read_text()


def test_the_answer_of_a_sweep_says_which_points_are_overloaded_and_takes_its_lead_from_others():
    from specsim.figures import report

    told = {"winner": "a", "second": "b", "mean": 0.4, "half_width": 0.03, "decided": True, "tied": 1}
    loads = [(4, "kept up", 0.1), (8, "overloaded", 0.2), (12, "overloaded", 0.3)]
    won = [{**told, "rps": x, "winner_load": load, "lead": d, report.PANEL: report.EVERY} for x, load, d in loads]
    table, axes = pd.DataFrame({"seed": range(5)}), SweepAxes("rps", "scheduler", (), ())
    which, lead = report._sweep_answer(table, axes, won)
    assert which == "a attains most at all 3 points of rps, 2 of them overloaded."
    assert lead.startswith("Each lead is beyond the noise between seeds. The largest")
    _, less = report._sweep_answer(table, axes, [{**won[0], "decided": False}, *won[1:]])
    assert less.startswith("2 of 3 leads are beyond the noise between seeds. ")
    assert lead.endswith("The largest lead is that of a at rps = 4: 40.0%, 10.0 \u00b1 3.0 points more than b.")
    few = [{**each, "half_width": float("nan"), "decided": False} for each in won]
    assert report._sweep_answer(table, axes, few)[1].startswith("Fewer than 5 seeds decide nothing. The largest")
    (alone,) = report._sweep_answer(table, axes, few[2:])
    assert alone == "a attains most, 40.0% at rps = 12, overloaded: 30.0 points more than b."


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize(("name", "width", "dark"), [("run", 390, True), ("sweep", 1440, False)])
def test_a_browser_draws_the_page_filters_it_and_asks_for_nothing_outside(pages, tmp_path, name, width, dark):
    (tmp_path / "probed.html").write_text(pages[name].read_text().replace("<head>", f"<head>{PROBE}", 1))
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1500,900", "--virtual-time-budget=60000"]
    words += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", (tmp_path / "frame.html").as_uri()]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in ran.stderr
    seen = json.loads(re.search(r'data-seen="([^"]*)"', ran.stdout)[1].replace("&quot;", '"'))
    assert (seen["said"], seen["drawn"], seen["dark"]) == ([], len(specs_in(pages[name])), dark)
    assert seen["wide"] <= 0
    assert all(0 < after < before for before, after in zip(seen["before"], seen["after"], strict=True))


@pytest.mark.slow
def test_the_examples_of_docs_report_md_run(here):
    (here / "paper.py").write_text(block(page("report"), "python"))
    runpy.run_path("paper.py", run_name="__main__")
    assert [main(words) for words in commands(page("report"))] == [0, 0]
    assert {"attainment.pdf", "difference.pdf", "first.html"} <= {each.name for each in here.iterdir()}
