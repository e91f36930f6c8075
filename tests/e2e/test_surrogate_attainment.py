"""AdaServe attains on a surrogate what it attains on the real trace, within three points."""

from pathlib import Path

import pytest

from specsim import simulate


@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize(
    ("trace", "settings"), [("azure_code", {"replicas": 1}), ("azure_conv", {"requests": 4000, "rps": 6.0})]
)
def test_attainment(trace: str, settings: dict[str, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = simulate("adaserve", trace, **settings)
    if real.provenance["trace"]["origin"] != "real":
        pytest.skip("needs the real traces: SPECSIM_DATA does not hold them")
    monkeypatch.setenv("SPECSIM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    surrogate = simulate("adaserve", trace, **settings)
    assert surrogate.provenance["trace"]["origin"] == "surrogate"
    assert 0.05 < real.slo_attainment < 0.99
    assert abs(surrogate.slo_attainment - real.slo_attainment) <= 0.03
