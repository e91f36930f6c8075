"""The points of whole engines that simulated times are held against, and the page that says how far they are."""

import pandas as pd
import pytest

from profiler.fidelity.report import page as study_page
from profiler.fidelity.tables import read_tables
from specsim.calibration.fit import Fit
from specsim.calibration.reading import MeasuredServer, read_points
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.engine import Engine
from specsim.latency.profile import load_profile
from studies.report import without_images
from studies.served_points import composed, composed_tables
from studies.served_points.__main__ import main
from studies.served_points.sets import SETS, engine_named, points_of
from tests.unit.test_profile_public import DATA, needs_data

ROOT = shipped("conf").parent


@needs_data
def test_points_beyond_the_memory_do_not_fit():
    server = MeasuredServer(load_profile("qwen3_32b_06b_2xh100"))
    loads = [each.load for each in points_of(DATA, SETS[0])]
    beyond = {load[:3] for load in loads if not server.fits(load, Engine())}
    assert beyond == {(4096, output, 128) for output in (128, 512, 1024)}


@needs_data
def test_the_points_of_the_docs_are_those_of_the_set():
    told = read_points([ROOT / "docs" / "points" / "llama70b_fp8_4xh100_vllm.csv"], 4).points
    every = points_of(DATA, SETS[1])
    assert [each.load for each in sorted(told)] == [each.load for each in every]
    for mine, theirs in zip(sorted(told), every, strict=True):
        assert mine[1:] == pytest.approx(theirs[1:], rel=1e-4)


def test_a_row_s_name_says_what_its_columns_multiply(monkeypatch):
    """By name TP4 and EP4; columns of vLLM's count them twice; a copy in the unseen half is left out."""
    imax = "source_file=2026-04-06.csv; silicon_concurrency=8"
    common = {"mode": "agg", "system": "b200_sxm", "isl": 1024, "osl": 1024, "precision": "fp8"}
    common |= {"silicon_ttft_ms": 90.0, "backend_version": "0.19.0", "silicon_data_source": imax, "batch_size": 8.0}
    minimax = common | {"model_path": "MiniMaxAI/MiniMax-M2.5", "backend": "vllm", "gemm_quant_mode": "fp8"}
    columns = ("id", "silicon_tpot_ms", "tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "batch_size")
    rows = [
        ("a_c8_tp4_ep4_1", 10.0, 16, 1, 4, 4, 8),
        ("a_c8_tp4_ep4_2", 10.0, 16, 1, 4, 4, 8),
        ("a_c8_cfg1", 11.0, 4, 4, 1, 16, 2),
        ("a_c8_cfg2", 12.0, 16, 1, 4, 4, 8),
        ("a_c8_tp4_ep4_3", 13.0, 1, 16, 4, 4, 0.5),
    ]
    made = [minimax | dict(zip(columns, row, strict=True)) for row in rows]
    monkeypatch.setattr(composed, "served_points", lambda: pd.DataFrame(made))
    found = composed.rows_of(composed.HALVES)
    placed = found.scored[["id", "half", "tp", "ep", "precision"]].to_numpy().tolist()
    assert placed == [
        ["a_c8_tp4_ep4_1", "seen", 4, 4, ""],
        ["a_c8_cfg1", "seen", 4, 4, ""],
        ["a_c8_cfg2", "unseen", 4, 4, ""],
    ]
    assert {reason for reason, count in found.left_out.items() if count} == {
        "attention split by requests (data-parallel)",
        "the same measurement under another name",
    }


def test_what_the_rows_do_not_state_is_set_by_scripts_and_versions():
    shares = [composed.share_of(*each) for each in ((True, "0.5.6"), (False, "0.5.6.post2"), (False, "0.5.1.post1"))]
    assert shares == [0.8, 0.95, 1.0]
    placed = [("sglang", None, 8), ("sglang", None, 4), ("sglang", "nvfp4", 4), ("vllm", None, 8)]
    assert [composed.budget_of(True, *each) for each in placed] == [32768, 8192, 16384, 8192]
    assert composed.budget_of(False, *placed[0]) == 8192
    places = [("gpt-oss-120b", "b200_sxm", "vllm"), ("gpt-oss-120b", "h200_sxm", "vllm")]
    assert [composed.experts_of(*each) for each in places] == ["mxfp4_mxfp8", None]


@pytest.mark.parametrize(("page", "of"), [("composing", "|"), ("profiles", "| all |")])
def test_the_docs_say_what_the_study_kept(page, of):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    lines = composed_tables.kinds_table().splitlines()
    assert not [line for line in lines if (line in lines[:2] or of in line) and line not in text]


@needs_data
@pytest.mark.slow
def test_the_page_holds_what_the_command_writes(tmp_path):
    assert main(["--data", str(DATA), "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "served-points.md").read_text(encoding="utf-8")


def test_the_page_of_the_study_holds_what_its_rows_say():
    folder = ROOT / "results" / "fidelity" / "cpu"
    remarks = (folder / "remarks.md").read_text(encoding="utf-8")
    made = study_page(read_tables(folder), figures="figures", remarks=remarks)
    assert without_images(made) == (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")


def test_missing_points_are_one_line(tmp_path, capsys):
    assert main(["--data", str(tmp_path)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "perf/serving_points" in message


@needs_data
def test_an_engine_fitted_by_hand_says_what_calibrate_finds():
    of, found = SETS[0], "finds 0.68 ms and 46 us)"
    server = MeasuredServer(load_profile(of.profile))
    points = [each for each in points_of(DATA, of) if server.fits(each.load, Engine())]
    engine = Fit(server, engine_named(of.engine)).engine(points)
    host = f"{1e6 * engine.request_s:.0f} us" if engine.request_s else "0"
    assert found == f"finds {1e3 * (engine.overhead_s or 0.0):.2f} ms and {host})"
    assert found in read_yaml(ROOT / "conf" / "engine" / f"{of.engine}.yaml")["source"]
