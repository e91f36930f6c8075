"""The study of speed-ups: what it reads of a row, what it runs, what its scores say, and its page."""

from dataclasses import replace
from pathlib import Path

import pytest
from pandas import DataFrame

from specsim.files.yaml_file import shipped
from studies.report import kept, without_images
from studies.speedups import page, running, scores, simulated
from studies.speedups.measured import PublishedTree, Side, measured, rows

ROOT = shipped("conf").parent


def given(**cells: object) -> DataFrame:
    """Return a table of one row with the columns of measured.csv."""
    told = {"source": "a source", "engine_version": "vLLM 0.10.1", "target": "Qwen3-8B", "drafter": "EAGLE-3"}
    told |= {"k_or_tree": "3", "hardware": "H100-80GB", "tp": "1", "dataset": "GSM8K", "acceptance_length": 2.25}
    told |= {"load_kind": "batch size", "load": 1.0, "metric": "output tok/s"}
    told |= {"value_with": 300.0, "value_without": 200.0, "speedup": 1.5}
    nothing = dict.fromkeys(("isl_osl", "acceptance_per_position", "note"), float("nan"))
    return DataFrame([{**nothing, **told, **cells}], index=[2])


SPOKEN = {"target": "Llama-3.1-8B-Instruct", "k_or_tree": "chain 3", "acceptance_length": 2.5, "isl_osl": "100/50"}
((ROW,), _) = rows(given(**SPOKEN, value_with=float("nan"), value_without=float("nan")))


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        ("chain 3", PublishedTree(3, 1, 4)),
        ("tree depth 3 branching 4 (21 tokens)", PublishedTree(3, 4, 21)),
        ("steps-topk-tokens 7-4-8", PublishedTree(7, 4, 8)),
    ],
)
def test_a_shape_is_read_as_sources_write_it(said, shape):
    ((row,), reasons) = rows(given(k_or_tree=said))
    assert (row.side, reasons) == (Side("EAGLE-3", shape, 2.25), {})


def test_a_source_says_what_its_rows_do_not():
    """SGLang's pull request 29538: no block is stated, the server runs experts in parallel."""
    cells = {"source": "sgl-project/sglang#29538", "engine_version": "SGLang", "target": "DeepSeek-V4-Flash"}
    ((row,), _) = rows(given(**cells, drafter="DSpark", k_or_tree=float("nan"), hardware="8xB200", tp="8"))
    assert row.side.shape == PublishedTree(5, 1, 6)
    arguments = simulated.composed(row, row.side)
    assert (arguments["ep"], arguments["tp"], arguments["drafter"]) == (8, 8, "dspark")
    assert simulated.settings(row, None, 4.0, None)["engine.max_num_seqs"] == 32
    ((row,), _) = rows(given(engine_version="SGLang 0.5.9"))
    assert simulated.settings(row, row.side, 128.0, 0.5)["engine.max_num_seqs"] == 128


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"hardware": "4xMI355X"}, "GPU: 4xMI355X"),
        ({"target": "Kimi-K3"}, "target: Kimi-K3"),
        ({"metric": "acceptance length"}, "metric: acceptance alone"),
        ({"acceptance_length": float("nan"), "load": 8.0}, "acceptance: neither stated nor measured at batch 1"),
    ],
)
def test_a_row_that_cannot_be_compared_says_why(cells, reason):
    assert rows(given(**cells)) == ([], {2: reason})


def test_a_lookup_matches_where_it_accepts_and_in_the_stated_share_of_other_steps():
    lookup = replace(ROW, side=Side("n-gram", PublishedTree(3, 1, 4), None))
    match = simulated.settings(lookup, lookup.side, 1.0, 0.4)[simulated.MATCH]
    assert match == pytest.approx(0.4 * match + 0.2 * (1 - 0.4 * match), abs=1e-3), "of GSM8K"
    assert simulated.MATCH not in simulated.settings(ROW, ROW.side, 1.0, 0.4)


def test_a_predicted_speed_up_is_that_of_the_two_commands(monkeypatch):
    """A verification of a chain of three at batch 1, by the profile that ships: passes by hand, no prompts."""
    profile = ROOT / "conf" / "profile" / "llama8b_eagle3_h100.yaml"
    monkeypatch.setattr(simulated, "profile_file", lambda arguments: profile)
    (found,) = running.series_rows([ROW], {})
    assert found["role"] == running.SCORED
    assert sum(found["rate"] ** depth for depth in range(4)) == pytest.approx(2.5, rel=running.ERROR)
    both = [simulated.ran(simulated.settings(ROW, side, 1.0, found["rate"])) for side in (ROW.side, None)]
    assert found["predicted"] == both[0].throughput / both[1].throughput
    assert 1.3 < found["predicted"] < found["length"] == pytest.approx(2.5, rel=0.03)
    # Faster drafts pay more: twice the accepted tokens in the same step.
    assert running.speedup_of(replace(ROW, speedup=None), 1.0, 0.95) > 1.3 * found["predicted"]


def test_the_page_the_list_and_the_readme_are_those_of_the_kept_rows(monkeypatch):
    monkeypatch.chdir(ROOT)
    table = kept(running.KEPT)
    assert page.PAGE.read_text(encoding="utf-8") == without_images(page.page(table))
    assert Path(page.POINTS).read_text(encoding="utf-8") == page.points(table)
    scored = scores.speedups(table)
    said = f"Over {len(scored)} measured speed-ups"
    _, _, rest = " ".join(Path("README.md").read_text(encoding="utf-8").split()).partition(said)
    assert f"a median of {100 * scores.errors_of(scored).median:.1f}%" in rest[:200]
    assert "docs/speedups.md#worst-rows" in rest[:300]


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("line", [303, 77])
def test_a_kept_prediction_is_what_its_runs_give(line, tmp_path, monkeypatch):
    """Its profile is composed anew; where this fails, the rows are of older code: python -m studies.speedups."""
    pytest.importorskip("aiconfigurator_core")
    monkeypatch.chdir(ROOT)
    table = kept(running.KEPT)
    monkeypatch.setattr(simulated, "PROFILES", tmp_path)
    row = next(each for each in rows(measured())[0] if each.line == line)
    simulated.compose(simulated.composed(row, row.side))
    (found,) = running.series_rows([row], {})
    (before,) = table[table["line"] == line].to_dict("records")
    for key in ("rate", "length", "predicted_with", "predicted_without", "predicted"):
        assert found[key] == pytest.approx(before[key], rel=1e-6)


@pytest.mark.usefixtures("real_data")
def test_every_kept_row_is_one_of_the_file(monkeypatch):
    monkeypatch.chdir(ROOT)
    table = kept(running.KEPT)
    found, _ = rows(measured())
    assert sorted(table.loc[table["line"] > 0, "line"]) == sorted(row.line for row in found)
