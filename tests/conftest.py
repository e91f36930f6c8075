"""What holds of every test: examples are drawn alike in each run, and none has a deadline on a shared machine."""

import gc
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import specsim.files.kept
import tests.data  # It hides the machine's data before any test asks.

settings.register_profile("specsim", deadline=None, derandomize=True)
settings.load_profile("specsim")

specsim.files.kept.MOST_BYTES = 0  # What tests draw at random is not worth keeping.
# Compiling takes seconds: also tests that have a cache of their own share what it makes.
os.environ.setdefault("NUMBA_CACHE_DIR", str(specsim.files.kept.user_cache() / "numba"))

SEED_BITS = 32
PASSED = Path(os.environ.get("SPECSIM_PASSED", os.devnull))
"""Node ids that passed: `.ci/run` lets its second session leave out what its first has run."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: Any) -> None:
    """Choose the seed of the tests that explore at random here, so that every worker of xdist has the same."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = random.SystemRandom().getrandbits(SEED_BITS)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say the seed, also under -q, unless the tests that it is for are left out."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and "not slow" not in config.option.markexpr:
        reporter.write_line(f"thorough laws: --hypothesis-seed={config.getoption('--hypothesis-seed')}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed in an earlier session."""
    passed = set(PASSED.read_text(encoding="utf-8").splitlines()) if PASSED.exists() else set()
    config.hook.pytest_deselected(items=[each for each in items if each.nodeid in passed])
    items[:] = [each for each in items if each.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what passed, for a later session; workers of xdist leave that to the process that started them."""
    if report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with PASSED.open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def pytest_collection_finish() -> None:
    """Let the garbage collector come seldom and leave alone what stays until the end: a sixth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test see the machine's data folders; it is left out where there are none."""
    if not os.environ[tests.data.KEPT]:
        pytest.skip("$SPECSIM_DATA is unset")
    monkeypatch.setenv(tests.data.DATA_VARIABLE, os.environ[tests.data.KEPT])


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no trace that was fetched on this machine be found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder, and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let figures be drawn but not rendered: their files, which take most of a figure's time, are empty."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: Path(path).write_bytes(b""))


@pytest.fixture
def one_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `tune` judge its best under one other condition: all take most of its time, and change no settings."""
    from specsim.search import tune

    really = tune.conditions
    monkeypatch.setattr(tune, "conditions", lambda *given, **more: [next(really(*given, **more))])


@pytest.fixture
def refused(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what holds that a command is refused in one line, and writes nothing, and gives this line."""
    from specsim.cli import main

    def refuse(*words: str) -> str:
        before = sorted(here.rglob("*"))
        try:
            code: object = main(list(words))
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        assert (code, said.out, len(said.err.splitlines())) == (2, "", 1)
        assert said.err.startswith("specsim: ")
        assert "Traceback" not in said.err
        assert sorted(here.rglob("*")) == before
        return said.err

    return refuse


@pytest.fixture
def nothing_runs(started: list[object]) -> Iterator[None]:
    """Hold that no simulation starts."""
    yield
    assert not started


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count the simulations that start."""
    from specsim import simulation

    begun: list[object] = []
    really = simulation.run

    def run(*given: Any) -> Any:
        begun.append(given)
        return really(*given)

    monkeypatch.setattr(simulation, "run", run)
    return begun
