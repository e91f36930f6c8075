"""What ships under traces/: surrogates within 5% of the real files, toys, checksums, size."""

import hashlib
import importlib.util
import json
import re
from dataclasses import asdict

import numpy as np
import pytest
import yaml

from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.workload.load import trace_recipe
from specsim.workload.readers import content
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file
from tools.describe import describe

TRACES = shipped("traces")
REAL = json.loads((TRACES / "real_statistics.json").read_text())
PROMISED = ("interarrival_cv", "fano_1s", "fano_10s", "prefill_dispersion_10s", "prefill_cv_10s")
QUANTILES = ("prompt_quantiles", "output_quantiles")
TOYS = sorted(TRACES.glob("**/*_toy.csv.gz"))


def surrogate(name):
    return read_user_file(TRACES / f"{name}_surrogate.csv.gz", TraceSource(name, "surrogate")).trace


def real(name):
    values = yaml.safe_load((shipped("conf") / "trace" / f"{name}.yaml").read_text())
    values.pop("defaults", None)
    try:
        return trace_recipe({**values, "surrogate": False}).trace(seed=0)
    except SpecsimError:
        pytest.skip("the real file is not on this machine")


@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
def test_the_surrogate_is_within_5_percent_of_the_real_statistics(name):
    wanted, found = REAL[name], asdict(describe(surrogate(name)))
    assert found["requests"] == wanted["requests"]
    for key in PROMISED:
        assert found[key] == pytest.approx(wanted[key], rel=0.05), key
    for key in QUANTILES:
        assert list(found[key]) == pytest.approx(list(wanted[key]), rel=0.05), key
    for key in ("prompt_output_rank_correlation", "prompt_rank_lag1", "output_rank_lag1"):
        assert found[key] == pytest.approx(wanted[key], abs=0.03), key


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
def test_the_stored_statistics_are_those_of_the_real_file_itself(name):
    for key, value in asdict(describe(real(name))).items():
        assert REAL[name][key] == pytest.approx(list(value) if isinstance(value, tuple) else value, rel=1e-9)


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
def test_the_surrogate_keeps_counts_per_second_and_copies_no_row(name):
    trace, copy = real(name), surrogate(name)
    assert np.array_equal(np.bincount(trace.arrival_s.astype(int)), np.bincount(copy.arrival_s.astype(int)))

    def rows(of, width_s):
        tick = (of.arrival_s / width_s).astype(int)
        return set(zip(tick.tolist(), of.prompt_tokens.tolist(), of.output_tokens.tolist(), strict=True))

    assert not rows(trace, 0.001) & rows(copy, 0.001)
    assert len(rows(trace, 1.0) & rows(copy, 1.0)) < len(trace) * 0.01


@pytest.mark.usefixtures("real_data")
def test_the_script_makes_the_shipped_rows_again(tmp_path):
    trace = real("azure_code")
    spec = importlib.util.spec_from_file_location("fit_surrogates", TRACES.parent / "tools" / "fit_surrogates.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.surrogate_of(trace)
    script.write_csv(tmp_path / "t.csv.gz", made)
    assert content(tmp_path / "t.csv.gz") == content(TRACES / "azure_code_surrogate.csv.gz")


def test_the_readme_gives_the_checksum_of_every_file_that_ships():
    readme = (TRACES / "README.md").read_text()
    listed = dict(re.findall(r"^\| `([^`]+\.csv\.gz)` .*\| `([0-9a-f]{64})` \|$", readme, re.MULTILINE))
    found = {
        str(file.relative_to(TRACES)): hashlib.sha256(content(file)).hexdigest() for file in TRACES.glob("**/*.csv.gz")
    }
    assert listed == found
    assert "CC BY 4.0" in readme


def test_toys_are_of_a_few_hundred_requests_and_all_of_it_below_a_megabyte():
    assert len(TOYS) == 35
    for file in TOYS:
        assert 200 <= len(read_user_file(file, TraceSource("toy", "toy")).trace) <= 500
    assert sum(file.stat().st_size for file in TRACES.glob("**/*.*")) < 1_000_000
