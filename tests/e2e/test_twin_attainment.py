"""AdaServe attains on a twin what it attains on the real trace, within three points."""

import os
from pathlib import Path

import pytest

from specsim import simulate
from specsim.workload.published import data_folders
from tests.data import KEPT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "settings"), [("azure_code", {"replicas": 1}), ("azure_conv", {"requests": 4000, "rps": 6.0})]
)
def test_attainment(trace: str, settings: dict[str, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECSIM_DATA", os.environ[KEPT])
    if not data_folders():
        pytest.skip("needs the real traces: SPECSIM_DATA is not set")
    real = simulate("adaserve", trace, **settings)
    if real.provenance["trace"]["origin"] != "real":
        pytest.skip("needs the real traces: SPECSIM_DATA does not hold them")
    monkeypatch.setenv("SPECSIM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    twin = simulate("adaserve", trace, **settings)
    assert twin.provenance["trace"]["origin"] == "twin"
    assert 0.05 < real.slo_attainment < 0.99
    assert abs(twin.slo_attainment - real.slo_attainment) <= 0.03
