"""Thirty seeded faults, one line each, and whether the tests catch them: `python -m tests.mutants [--tests FOLDER]`.

Each fault goes into a copy of the package; the fast tests that are to notice it run there. The tests are those of this
checkout, or of the checkout at FOLDER. Exit status 1 where a fault is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[1]
UNSHRUNK = """\
from hypothesis import Phase, settings

settings.register_profile("unshrunk", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
"""
"""A pytest plugin: that a law fails is enough, its smallest example takes minutes."""


PLUGIN = ("-p", "unshrunk", "--hypothesis-profile=unshrunk")


class Fault(NamedTuple):
    """A line as it stands once in a file, what it becomes, and what pytest is given to notice."""

    file: str
    line: str
    becomes: str
    pytest: tuple[str, ...]


def of(*names: str) -> tuple[str, ...]:
    return ("-k", " or ".join(names))


LAWS = "tests/laws/test_every_scheduler.py"
GOLDEN = "tests/golden/test_golden.py"
MISTAKES = "tests/conf/test_bad_input.py"
BOOKS, TREES = "specsim/kernels/ledger_loops.py", "specsim/kernels/tree_loops.py"
SLO_TREES = "conf/scheduler/adaserve.yaml"
SELECTION = "specsim.schedulers.parts.selection"

FAULTS = (
    Fault(
        "specsim/server/kv_cache.py",
        "        self.used_bytes -= int(held[DRAFT]) * self._block_bytes[DRAFT]",
        "        self.used_bytes -= 0",
        (LAWS, *of("vllm_spec")),
    ),
    Fault(BOOKS, "min(matched[row] + 1, left)", "(matched[row] + 1)", (LAWS, *of("vllm_spec"))),
    Fault(BOOKS, "min(matched[row], tokens[row]), tokens", "matched[row], tokens", (LAWS, *of("specinfer"))),
    Fault(
        BOOKS,
        "        if before > 0 and emits > 0:\n            verifications[request] += 1\n",
        "        verifications[request] += 1\n        if before > 0 and emits > 0:\n",
        (LAWS, *of("fcfs")),
    ),
    Fault(BOOKS, "+= tree[row] > 0", "+= tree[row] >= 0", (LAWS, *of("specserve"))),
    Fault(
        "specsim/server/prefix_cache.py",
        "self._progress.preemptions[ids] += 1",
        "self._progress.preemptions[ids] = 1",
        ("tests/reference/test_pass_for_pass.py", *of("continuous")),
    ),
    Fault(
        BOOKS,
        "draft_nodes[request] = draft_depth[request] = 0",
        "draft_depth[request] = 0",
        ("tests/unit/test_kernels.py",),
    ),
    Fault(
        "specsim/backend/drafting.py",
        "grown.numbers[DEPTH] < max_depth[row]",
        "grown.numbers[DEPTH] <= max_depth[row]",
        (LAWS, *of("smartspec_per_request")),
    ),
    Fault(
        "specsim/cluster/routers.py",
        "servers[place].outstanding_tokens())",
        "servers[place].requests)",
        ("tests/laws/test_routing.py", *of("least_tokens")),
    ),
    Fault(
        "specsim/schedulers/sarathi.py",
        "    left = budget - int(np.count_nonzero(decodes))",
        "    left = budget - int(np.count_nonzero(decodes)) - int(np.random.random() < 0.05)",
        ("tests/laws/test_running_ahead.py", *of("sarathi")),
    ),
    Fault(
        "specsim/metrics/recorder.py",
        "        self.draft_passes += len(seconds)",
        "        self.draft_passes += len(seconds) if self._passes is not None else 1",
        (LAWS, *of("vllm_spec")),
    ),
    Fault(
        TREES,
        "path[high] = confidence[rows[0, behind], token], ahead",
        "path[high] = 0.9 if right else 0.1, ahead",
        (GOLDEN, *of("specserve")),
    ),
    Fault(
        "specsim/server/rules.py",
        "(leaves < 0) | (leaves >= nodes)",
        "(leaves < 0) | (leaves > nodes)",
        ("tests/laws/test_illegal_passes.py",),
    ),
    Fault(
        "specsim/server/engine.py",
        "possible(thinking_s + seconds)",
        "possible(1.001 * (thinking_s + seconds))",
        ("tests/theory/test_queueing.py", "-k", "not littles"),
    ),
    Fault(TREES, "np.uint64(2 * token + 3)", "np.uint64(3)", ("tests/unit/test_kernels.py",)),
    Fault(
        TREES,
        "min(most_nodes, left), chosen",
        "min(most_nodes, budget - rows), chosen",
        ("tests/theory/test_selection_optimal.py", GOLDEN),
    ),
    Fault(
        "specsim/schedulers/adaserve.py",
        "- (view.emitted_tokens[requests] - 1)",
        "- view.emitted_tokens[requests]",
        (GOLDEN, *of("adaserve")),
    ),
    Fault(SLO_TREES, f"{SELECTION}.at_most_the_tree", f"{SELECTION}.nothing", (GOLDEN, *of("adaserve"))),
    Fault(SLO_TREES, f"{SELECTION}.neediest_first", f"{SELECTION}.least_needy_first", (GOLDEN, *of("adaserve"))),
    Fault(SLO_TREES, "slo_share: 1.2", "slo_share: 0.1", (GOLDEN, *of("adaserve"))),
    Fault(
        "specsim/schedulers/laps_sd.py",
        "(drafted * rate + 1) * round_s",
        "(drafted * rate + 1.5) * round_s",
        (GOLDEN, *of("laps_sd")),
    ),
    Fault(
        "specsim/schedulers/vtc.py",
        "min(others) if others else last)",
        "max(others) if others else last)",
        ("tests/schedulers/test_vtc.py",),
    ),
    Fault(
        "specsim/latency/forms.py",
        "(memory if memory > compute else compute)",
        "memory",
        ("tests/unit/test_latency_forms.py",),
    ),
    Fault(
        "specsim/metrics/requests.py",
        "(_meets(tpot_s, self.told.tpot_slo_s) | (self.done.emitted_tokens <= 1))",
        "_meets(tpot_s, self.told.tpot_slo_s)",
        ("tests/unit/test_metrics_summary.py",),
    ),
    Fault(
        "specsim/metrics/summary.py",
        "in_time = slo_ok & (rows",
        "in_time = slo_ok | (rows",
        ("tests/unit/test_metrics_summary.py",),
    ),
    Fault(
        "specsim/metrics/load.py",
        "MOST_MAKESPAN_RATIO = 1.1",
        "MOST_MAKESPAN_RATIO = 2",
        ("tests/theory/test_load.py",),
    ),
    Fault("specsim/config/points.py", "        if key in axes:", "        if key in axes and not sweep:", (MISTAKES,)),
    Fault(
        "specsim/files/checked_mapping.py",
        "is_number(value) and least <= value <= most and above < value < below",
        "is_number(value) and value <= most and above < value < below",
        (MISTAKES,),
    ),
    Fault(
        "specsim/config/synonyms.py",
        "config_name config_path config_dir hydra_searchpath cn cp cd",
        "config_name",
        (MISTAKES,),
    ),
    Fault(
        "specsim/runs/hardware.py", 'raise SpecsimError(f"warmup: no request', 'print(f"warmup: no request', (MISTAKES,)
    ),
)


def copied(tests: Path, folder: Path) -> None:
    """Copy what tests need to `folder`: the package of this checkout, and the tests of another."""
    for name in ("specsim", "conf", "traces", "docs", "profiler", "studies", "tools"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(tests / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", folder)
    (folder / "unshrunk.py").write_text(UNSHRUNK, encoding="utf-8")


def is_caught(fault: Fault, folder: Path) -> bool:
    """Return whether the tests fail with the fault in the copy, and take it out again.

    Raises
    ------
    SystemExit
        When they could not run, or fail without the fault.
    """
    file = folder / fault.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(fault.line) != 1:
        raise SystemExit(f"{fault.file} holds {fault.line!r} {whole.count(fault.line)} times; expected once")
    file.write_text(whole.replace(fault.line, fault.becomes), encoding="utf-8")
    try:
        code = _pytest(fault, folder)
    finally:
        file.write_text(whole, encoding="utf-8")
    if code not in (0, 1):
        raise SystemExit(f"pytest {' '.join(fault.pytest)}: exit status {code}; expected tests that run")
    return code == 1


def _pytest(fault: Fault, folder: Path) -> int:
    words = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *PLUGIN, *fault.pytest)
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["NUMBA_CACHE_DIR"] = str(folder / "numba")
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=Path, default=CHECKOUT, help="the checkout whose tests run")
    tests = parser.parse_args().tests.resolve()
    caught = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(tests, folder)
        for given in sorted({fault.pytest for fault in FAULTS}):
            if _pytest(Fault("", "", "", given), folder) != 0:
                print(f"fails without a fault: {' '.join(given)}", flush=True)
        for fault in FAULTS:
            found = is_caught(fault, folder)
            caught += found
            print("caught" if found else "MISSED", fault.file, fault.becomes.strip() or "(left out)", flush=True)
    print(f"{caught} of {len(FAULTS)} faults are caught")
    return int(caught < len(FAULTS))


if __name__ == "__main__":
    raise SystemExit(main())
