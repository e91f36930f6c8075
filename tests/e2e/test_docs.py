"""README, pages of docs/ and the notebook: links lead somewhere, commands do and policies attain what is said."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

import specsim
from specsim import load_sweep, plugin, simulate
from specsim.cli import main
from specsim.metrics.seeds import KEPT_UP, SATURATED
from tests.files import ROOT, block, commands

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(?:https?:)?//(?!www\.w3\.org)[^>]+>")


@cache
def headings(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_to_a_file_and_a_heading(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), link
        assert not anchor or anchor in headings(there), link


def test_the_glossary_names_what_is_there():
    """A name in the second column stands in some file of the code, or is a number that docs/metrics.md defines."""
    rows = re.findall(r"^\| \*\*.+?\*\* \| (.*?) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 40
    code = (ROOT / "docs/metrics.md").read_text(encoding="utf-8") + "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("specsim", "conf", "profiler")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml")
    )
    for name in (name for row in rows for name in re.findall(r"`([^`]+)`", row)):
        assert re.search(rf"\b{re.escape(name.rpartition('.')[2].rstrip('='))}\b", code), name


@pytest.mark.slow
def test_the_site_builds_without_a_warning_holds_all_and_needs_no_network(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    site = tmp_path / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).exists(), page.name
    assert "discrete-event simulator" in (site / "index.html").read_text(encoding="utf-8")
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<!-- figures" not in text, page
        assert all((site / image).is_file() for image in re.findall(r'<img[^>]* src="([^":]+)"', text)), page
    for name, public in (("specsim", specsim.__all__), ("plugin", plugin.__all__)):
        reference = (site / "api" / f"{name}.html").read_text(encoding="utf-8")
        assert set(public) <= {each.rpartition(".")[2] for each in re.findall(r'<h\d id="(specsim[\w.]*)"', reference)}
    for page in site.rglob("*.html"):
        assert not ELSEWHERE.findall(page.read_text(encoding="utf-8")), page
    assert not [style for style in site.rglob("*.css") if "url(http" in style.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_page_on_sweeps_compares_two_policies_as_it_says(monkeypatch, tmp_path):
    """Each is tuned on one part of the traffic, and both are judged on another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    part = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8").partition("## Policies at their best")[2]
    tuning, comparing = (shlex.split(line)[1:] for line in part.splitlines()[:12] if line.startswith("    specsim "))
    before = Path("results/tune/conditions.csv")
    before.parent.mkdir(parents=True)
    before.write_text("of another search")
    assert main([*tuning, "--trials", "2", "requests=30", "seed=0"]) == 0
    assert not before.exists()
    assert main([*comparing, "requests=30", "out=compared"]) == 0
    compared = load_sweep("compared")
    assert {Path(run.config["choices"]["scheduler"]).stem for run in compared} == {"vllm_spec", "adaserve"}
    assert {tuple(run.config["trace"]["window"]) for run in compared} == {(1750, 3500)}


TYPED = re.findall(r"`specsim ([^`]+)`", README.partition("## To know, type")[2].partition("## Read")[0])


def test_the_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert set() < named <= targets


@pytest.mark.slow
@pytest.mark.usefixtures("one_condition")
def test_the_commands_of_the_readme_run_in_their_order_and_print_what_it_says(here, capsys):
    lines = [*commands(README), *map(shlex.split, TYPED)]
    assert len(lines) >= 6
    for words in lines:
        # What is printed of its runs depends on their length, and is not in README.
        assert main([*words, *(["requests=200"] if words[0] == "tune" else [])]) == 0, words
        said = capsys.readouterr()
        told = said.out + said.err
        assert "MISMATCHED" not in told
        if words[0] == "find":
            assert "too short to judge" not in told
            rates = re.findall(r"[\d.]+ ± [\d.]+", said.out)
            assert len(rates) == 3
            assert all(rate in README for rate in rates)
        else:
            assert "too short" not in told
    assert (here / "first/figures/timeline.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_table_of_the_readme_is_what_make_run_prints_of_runs_that_are_long_enough(capsys):
    recipe = (ROOT / "Makefile").read_text().partition("\nrun: ")[2].partition("\n\n")[0].partition("/specsim ")[2]
    assert main(shlex.split(recipe.replace("\\\n", " "))) == 0
    said = capsys.readouterr()
    (table,) = re.findall(r"```text\n(.*?)\n```", README, re.S)
    assert said.out.startswith(table) or f"\n{table}\n" in said.out
    assert "too short" not in said.out + said.err


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_python_of_the_readme_runs(capsys):
    Path("mine.py").write_text(block(README, "python"))
    runpy.run_path("mine.py")
    assert re.match(r"[01]\.\d+ \d+", capsys.readouterr().out)


def test_the_readme_says_what_the_table_of_its_figure_holds():
    said = " ".join(README.split())
    table = pd.read_csv(ROOT / "docs" / "figures" / "compare_schedulers.csv").set_index(["scheduler", "rps"])

    def shown(scheduler, rps, mean, sign=1):
        value, half = (100 * table.loc[(scheduler, rps), key] for key in (mean, f"{mean}_half_width"))
        return f"{sign * value:.1f} \u00b1 {half:.1f}"

    assert f"at 6 AdaServe attains {shown('adaserve', 6, 'slo_attainment')}%" in said
    assert f"{shown('adaserve', 6, 'difference')} points more than today's vLLM" in said
    assert f"which attains {shown('smartspec', 6, 'difference', -1)} more than SmartSpec" in said
    assert f"At 7 AdaServe is {shown('adaserve', 7, 'difference')} points ahead" in said
    assert f"vLLM without drafts attains {100 * table.loc[('vllm', 6), 'slo_attainment']:.0f}% at 6" in said
    assert set(table["load"]) <= {KEPT_UP, SATURATED}


@pytest.mark.slow
def test_the_notebook_s_verdict_is_what_comes_out(monkeypatch, tmp_path):
    """Its cells up to the first figure: tuned on one part of the surrogate, judged on another, by runs long enough.

    README's figure, of more schedulers and rates, has the same verdict.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "notebooks" / "attainment.ipynb").read_text(encoding="utf-8"))["cells"]
    made = {}
    for cell in [each for each in cells if each["cell_type"] == "code"][:2]:
        source = "".join(line for line in cell["source"] if not line.startswith("%"))
        exec(source.replace("print(tune(", "(tune(").replace("[2, 3, 4]", "[4]"), made)
    names = made["names"]
    means = made["by_rate"].over_seeds(against=next(iter(names))).replace({"scheduler": names})
    assert set(means["load"]) == {KEPT_UP}
    rows = {row["scheduler"]: row for row in means.to_dict("records")}
    told = {name: f"{100 * row['slo_attainment']:.1f}%" for name, row in rows.items()}
    apart, half = (100 * rows["adaserve"][key] for key in ("difference", "difference_half_width"))
    said = (
        f"At 4 requests/s AdaServe attains {told['adaserve']} and `vllm_spec` {told['vllm_spec']}, {apart:.1f} \u00b1 "
        f"{half:.1f} points apart (paired by seed); `vllm` attains {told['vllm']}."
    )
    assert any(said in "".join(cell["source"]) for cell in cells)
    assert "Up to 6 requests/s AdaServe and `vllm_spec` are level" in " ".join(README.split())
    # Level: no difference of a point is told from none.
    assert abs(apart) - half < 1
    assert rows["vllm"]["difference"] < -0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "rps", "requests", "attained", "budgets"),
    [
        ("llama70b_1b_4xh100", 6, 1000, 94.8, {192: 88.1, 256: 86.4, 512: 72.7}),
        ("qwen32b_05b_2xa100", 2, 600, 98.5, {64: 97.7, 96: 97.8, 128: 96.5, 256: 90.7, 512: 75.0}),
    ],
)
def test_adaserve_s_budget_attains_more_than_a_constant_as_its_page_says(
    profile, rps, requests, attained, budgets, monkeypatch
):
    text = " ".join((ROOT / "docs" / "adaserve.md").read_text(encoding="utf-8").split())
    settings = {"trace": "azure_conv", "profile": profile, "rps": rps, "requests": requests}

    def share(**budget):
        return round(100 * simulate("adaserve", **settings, **budget).slo_attainment, 1)

    assert share() == attained > max(budgets.values())
    assert {budget: share(scheduler__verify_tokens=budget) for budget in budgets} == budgets
    assert f"{profile}` attains {attained}%" in text or f"{profile}` {attained}%" in text
    assert all(f"{each}" in text for each in budgets.values())


@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize(
    ("trace", "settings"), [("azure_code", {"requests": 3000}), ("azure_conv", {"requests": 4000, "rps": 6.0})]
)
def test_adaserve_attains_on_a_surrogate_what_it_attains_on_the_real_trace(trace, settings, monkeypatch, tmp_path):
    real = simulate("adaserve", trace, **settings)
    if real.provenance["trace"]["origin"] != "real":
        pytest.skip("needs the real traces: SPECSIM_DATA does not hold them")
    monkeypatch.setenv("SPECSIM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    surrogate = simulate("adaserve", trace, **settings)
    assert surrogate.provenance["trace"]["origin"] == "surrogate"
    assert 0.05 < real.slo_attainment < 0.99
    assert abs(surrogate.slo_attainment - real.slo_attainment) <= 0.03
