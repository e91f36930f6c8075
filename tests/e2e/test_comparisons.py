"""What ships compares policies at their best: each tuned on one part of the traffic, all judged on another."""

import shlex
from pathlib import Path

import pandas as pd
import pytest

from specsim import load_sweep
from specsim.cli import main
from specsim.metrics.seeds import KEPT_UP, SATURATED

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.usefixtures("no_highest_rate")
def test_the_page_on_sweeps_compares_two_policies_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    part = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8").partition("## Policies at their best")[2]
    tuning, comparing = (shlex.split(line)[1:] for line in part.splitlines()[:12] if line.startswith("    specsim "))
    assert main([*tuning, "--trials", "2", "requests=30", "seed=0"]) == 0
    assert main([*comparing, "requests=30", "out=compared"]) == 0
    compared = load_sweep("compared")
    assert {Path(run.config["choices"]["scheduler"]).stem for run in compared} == {"vllm_spec", "adaserve"}
    assert {tuple(run.config["trace"]["window"]) for run in compared} == {(1750, 3500)}


def test_the_readme_says_what_the_table_of_its_figure_holds() -> None:
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    table = pd.read_csv(ROOT / "docs" / "figures" / "compare_schedulers.csv").set_index(["scheduler", "rps"])

    def shown(scheduler: str, rps: int, mean: str, sign: int = 1) -> str:
        value, half = (100 * table.loc[(scheduler, rps), key] for key in (mean, f"{mean}_half_width"))
        return f"{sign * value:.1f} \u00b1 {half:.1f}"

    assert f"at 6 AdaServe attains {shown('adaserve', 6, 'slo_attainment')}%" in said
    assert f"{shown('adaserve', 6, 'difference')} points more than today's vLLM" in said
    assert f"which attains {shown('smartspec', 6, 'difference', -1)} more than SmartSpec" in said
    assert f"At 7 AdaServe is {shown('adaserve', 7, 'difference')} points ahead" in said
    assert f"vLLM without drafts attains {100 * table.loc[('vllm', 6), 'slo_attainment']:.0f}% at 6" in said
    assert set(table["load"]) <= {KEPT_UP, SATURATED}
