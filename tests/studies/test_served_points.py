"""The points of whole engines that simulated times are held against, and the page that says how far they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.fidelity.report import page as study_page
from profiler.fidelity.tables import read_tables
from specsim.calibration.fit import Fit
from specsim.calibration.reading import Held, Point, Server, read_points
from specsim.calibration.replay import Load
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.engine import Engine
from specsim.latency.profile import load_profile
from studies.served_points.__main__ import main
from studies.served_points.serving import points_table
from studies.served_points.sets import SETS, Compared, PublishedSet, engine_named, points_of
from tests.unit.test_profile_public import DATA, needs_data

ROOT = shipped("conf").parent


@needs_data
@pytest.mark.parametrize("of", SETS, ids=lambda of: of.engine)
def test_each_set_is_there(of: PublishedSet) -> None:
    assert DATA is not None
    points = points_of(DATA, of)
    assert len(points) >= 15
    assert all(each.ttft_s > each.tpot_s > 1e-3 for each in points)


@needs_data
def test_points_beyond_the_memory_do_not_fit() -> None:
    assert DATA is not None
    server = Server(load_profile("qwen3_32b_06b_2xh100"))
    loads = [each.load for each in points_of(DATA, SETS[1])]
    assert {load[:3] for load in loads if not server.fits(load, Engine())} == {
        (4096, 128, 128),
        (4096, 512, 128),
        (4096, 1024, 128),
    }


@needs_data
def test_the_points_of_the_docs_are_those_of_the_set() -> None:
    assert DATA is not None
    told = read_points([ROOT / "docs" / "points" / "llama70b_fp8_4xh100_vllm.csv"], 4).points
    every = points_of(DATA, SETS[2])
    assert [each.load for each in sorted(told)] == [each.load for each in every]
    for mine, theirs in zip(sorted(told), every, strict=True):
        assert mine[1:] == pytest.approx(theirs[1:], rel=1e-4)


def test_the_worst_point_comes_first() -> None:
    def held(isl: int, factor: float) -> Held:
        load = Load(isl, 10, 1, 10)
        return Held(Point(load, 1.0, 0.1), Point(load, 2.0, 0.1 * factor))

    some = [held(1, 1.1), held(2, 0.5), held(3, 1.3)]
    lines = points_table([Compared(SETS[0], 0, {}, some, some, None)]).splitlines()[2:]
    assert [line.split(" | ")[1:4] for line in lines] == [["2", "10", "1"], ["3", "10", "1"], ["1", "10", "1"]]
    assert lines[0].endswith("| 100.00 | -50.0 | -50.0 | 1000 | +100 | +100 |")


@needs_data
@pytest.mark.slow
def test_the_page_holds_what_the_command_writes(tmp_path: Path) -> None:
    assert main(["--data", str(DATA), "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page.count("\n| Llama-3.1-8B") >= 42
    assert page == (ROOT / "docs" / "served-points.md").read_text(encoding="utf-8")


def test_the_page_of_the_study_holds_what_its_rows_say() -> None:
    folder = ROOT / "results" / "fidelity" / "cpu"
    remarks = (folder / "remarks.md").read_text(encoding="utf-8")
    made = study_page(read_tables(folder), figures="figures", remarks=remarks)
    assert made == (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")


def test_missing_points_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "perf/serving_points" in message


@needs_data
@pytest.mark.parametrize(
    ("of", "found"), [(SETS[0], "finds 0.37 ms and 0)"), (SETS[1], "finds 0.68 ms and 46 us)")], ids=["trtllm", "vllm"]
)
def test_an_engine_fitted_by_hand_says_what_calibrate_finds(of: PublishedSet, found: str) -> None:
    assert DATA is not None
    server = Server(load_profile(of.profile))
    points = [each for each in points_of(DATA, of) if server.fits(each.load, Engine())]
    engine = Fit(server, engine_named(of.engine)).engine(points)
    host = f"{1e6 * engine.request_s:.0f} us" if engine.request_s else "0"
    assert found == f"finds {1e3 * (engine.overhead_s or 0.0):.2f} ms and {host})"
    assert found in read_yaml(ROOT / "conf" / "engine" / f"{of.engine}.yaml")["source"]
