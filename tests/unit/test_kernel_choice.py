"""Which kernels a run takes: by a setting, after some patience, and only where numba is installed."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from specsim.api import simulate
from specsim.errors import SpecsimError
from specsim.kernels import chosen
from specsim.kernels.acceptance import numpy_answer
from specsim.kernels.growth import numpy_grow
from specsim.settings.identity import settings_of
from specsim.simulation import run
from tests.golden.scene import scene
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_numba", lambda: None)
    monkeypatch.delitem(sys.modules, "specsim.kernels.compiled", raising=False)


@pytest.fixture
def with_numba(monkeypatch: pytest.MonkeyPatch) -> list[chosen.Kernels]:
    """Let numba be installed and each compiling be noted."""
    compiled: list[chosen.Kernels] = []
    monkeypatch.setattr(chosen, "_numba", lambda: "0.61")
    monkeypatch.setattr(chosen.Kernels, "compile", lambda self: compiled.append(self))
    monkeypatch.delitem(sys.modules, "specsim.kernels.compiled", raising=False)
    return compiled


@pytest.mark.usefixtures("without_numba")
def test_numba_that_is_not_installed_is_refused_with_the_extra() -> None:
    with pytest.raises(SpecsimError) as caught:
        simulate("fcfs", "poisson", requests=2, kernel="numba")
    assert str(caught.value) == "kernel=numba: numba is not installed; expected specsim[fast], or kernel=auto"


@pytest.mark.usefixtures("without_numba")
def test_auto_is_numpy_where_numba_is_not_installed() -> None:
    assert chosen.kernels("auto").grow is numpy_grow
    assert chosen.described("auto") == {"chosen": "auto", "numba": None}


def test_another_kernel_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(SpecsimError, match=r"kernel: 'nunpy' is unknown.*numpy"):
        simulate("fcfs", "poisson", requests=2, kernel="nunpy")


def test_kernels_may_take_longer_to_compile_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine they take a minute: the scheduler whose step they interrupt is not at fault."""
    taken = []

    def slowly() -> SimpleNamespace:
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            pass
        taken.append(True)
        return SimpleNamespace(
            **{f"numba_{each.name}": getattr(chosen.NUMPY, each.name) for each in fields(chosen.NUMPY)}
        )

    monkeypatch.setattr(chosen, "PATIENCE", 1)
    monkeypatch.setattr(chosen, "_numba", lambda: "0.61")
    monkeypatch.setattr(chosen, "_imported", slowly)
    monkeypatch.delitem(sys.modules, "specsim.kernels.compiled", raising=False)
    run(replace(scene(), scheduler=factory_of("vllm_spec"), kernel="auto", step_limit_s=0.2))
    assert taken


def test_numba_is_compiled_before_the_first_pass(with_numba: list[chosen.Kernels]) -> None:
    assert with_numba == [chosen.kernels("numba")]


def test_numpy_never_compiles(with_numba: list[chosen.Kernels]) -> None:
    run(replace(scene(), scheduler=factory_of("vllm_spec"), kernel="numpy"))
    assert not with_numba


def test_auto_compiles_when_a_run_has_drafted_often(
    with_numba: list[chosen.Kernels], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = replace(scene(), scheduler=factory_of("vllm_spec"), keep_passes=True)
    patient = run(replace(simulation, kernel="auto"))
    assert not with_numba, "the run is short"
    monkeypatch.setattr(chosen, "PATIENCE", 3 * chosen.A_DRAFT)
    hurried = run(replace(simulation, kernel="auto"))
    assert len(with_numba) == 1
    assert_same_record(patient, hurried)


def test_a_run_that_never_drafts_waits_longer(
    with_numba: list[chosen.Kernels], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = replace(scene(), scheduler=factory_of("continuous"), kernel="auto", fast_forward=False)
    monkeypatch.setattr(chosen, "PATIENCE", 1_000_000)
    passes = run(simulation).totals.iterations
    for patience, compiled in ((passes + 1, 0), (passes, 1)):
        monkeypatch.setattr(chosen, "PATIENCE", patience)
        run(simulation)
        assert len(with_numba) == compiled


def test_kernels_are_those_of_the_run_that_goes_on() -> None:
    with chosen.using("numpy"):
        inside = chosen.chosen()
        assert inside is not chosen.NUMPY
    assert chosen.chosen() is chosen.NUMPY
    assert inside.answer is numpy_answer


def test_the_kernel_is_told_and_no_part_of_a_run() -> None:
    runs = [simulate("fcfs", "poisson", requests=2, kernel=kernel) for kernel in ("auto", "numpy")]
    assert [each.provenance["kernel"]["chosen"] for each in runs] == ["auto", "numpy"]
    assert runs[1].provenance["kernel"]["numba"] is None
    assert settings_of(runs[0].config) == settings_of(runs[1].config)
    assert all("kernel" not in each.config for each in runs)


def test_numba_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, specsim.api, specsim.runs.prepare, specsim.simulation; assert 'numba' not in sys.modules"
    subprocess.run((sys.executable, "-c", code), check=True)
