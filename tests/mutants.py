"""Thirty seeded faults, one line each, and whether the tests catch them: `python -m tests.mutants [--tests FOLDER]`.

Each fault goes into a copy of the package; the fast tests that are to notice it run there. The tests are those of this
checkout, or of the checkout at FOLDER. Exit status 1 where a fault is missed.
"""

import argparse
import os
import shlex
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
    """A text as it stands once in a file, what it becomes, and the words by which pytest is to notice."""

    file: str
    text: str
    becomes: str
    pytest: str


LAWS = "tests/laws/test_every_scheduler.py"
GOLDEN = "tests/golden/test_golden.py"
MISTAKES = "tests/conf/test_bad_input.py"
SUMMARY = "tests/unit/test_metrics_summary.py"
BOOKS, TREES = "specsim/kernels/ledger_loops.py", "specsim/kernels/tree_loops.py"
SLO_TREES, LEFT = "conf/scheduler/adaserve.yaml", "    left = budget - int(np.count_nonzero(decodes))"
PARTS = "specsim.schedulers.parts.selection"

FAULTS = (
    Fault("specsim/server/kv_cache.py", "-= int(held[DRAFT]) *", "-= 0 *", f"{LAWS} -k vllm_spec"),
    Fault(BOOKS, "min(matched[row] + 1, left)", "(matched[row] + 1)", f"{LAWS} -k vllm_spec"),
    Fault(BOOKS, "min(matched[row], tokens[row]), tokens", "matched[row], tokens", f"{LAWS} -k specinfer"),
    Fault(
        BOOKS,
        "        if before > 0 and emits > 0:\n            verifications[request] += 1\n",
        "        verifications[request] += 1\n        if before > 0 and emits > 0:\n",
        f"{LAWS} -k fcfs",
    ),
    Fault(BOOKS, "+= tree[row] > 0", "+= tree[row] >= 0", f"{LAWS} -k specserve"),
    Fault(
        "specsim/server/prefix_cache.py",
        "preemptions[ids] +=",
        "preemptions[ids] =",
        "tests/reference/test_pass_for_pass.py -k continuous",
    ),
    Fault(BOOKS, "draft_nodes[request] = draft_depth", "draft_depth", "tests/unit/test_kernels.py"),
    Fault("specsim/simulated_backend.py", "[DEPTH] < max_", "[DEPTH] <= max_", f"{LAWS} -k smartspec_per_request"),
    Fault(
        "specsim/cluster/routers.py",
        "].outstanding_tokens())",
        "].requests)",
        "tests/laws/test_routing.py -k least_tokens",
    ),
    Fault(
        "specsim/schedulers/sarathi.py",
        LEFT,
        f"{LEFT} - int(np.random.random() < 0.05)",
        "tests/laws/test_running_ahead.py -k sarathi",
    ),
    Fault(
        "specsim/metrics/recorder.py",
        "self.draft_passes += len(seconds)",
        "self.draft_passes += len(seconds) if self._passes is not None else 1",
        f"{LAWS} -k vllm_spec",
    ),
    Fault(TREES, "confidence[rows[0, behind], token], ahead", "0.9 if right else 0.1, ahead", f"{GOLDEN} -k specserve"),
    Fault("specsim/server/planning.py", "leaves >= nodes", "leaves > nodes", "tests/laws/test_illegal_passes.py"),
    Fault(
        "specsim/server/engine.py",
        "possible(thinking_s + seconds)",
        "possible(1.001 * (thinking_s + seconds))",
        "tests/theory/test_queueing.py -k 'not littles'",
    ),
    Fault(TREES, "np.uint64(2 * token + 3)", "np.uint64(3)", "tests/unit/test_kernels.py"),
    Fault(
        TREES,
        "nodes, left), chosen",
        "nodes, budget - rows), chosen",
        f"tests/theory/test_selection_optimal.py {GOLDEN}",
    ),
    Fault(
        "specsim/schedulers/adaserve.py",
        "emitted_tokens[requests] - 1",
        "emitted_tokens[requests]",
        f"{GOLDEN} -k adaserve",
    ),
    Fault(SLO_TREES, f"{PARTS}.at_most_the_tree", f"{PARTS}.nothing", f"{GOLDEN} -k adaserve"),
    Fault(SLO_TREES, f"{PARTS}.neediest_first", f"{PARTS}.least_needy_first", f"{GOLDEN} -k adaserve"),
    Fault(SLO_TREES, "slo_share: 1.2", "slo_share: 0.1", f"{GOLDEN} -k adaserve"),
    Fault("specsim/schedulers/laps_sd.py", "rate + 1) * round_s", "rate + 1.5) * round_s", f"{GOLDEN} -k laps_sd"),
    Fault("specsim/schedulers/vtc.py", "min(others)", "max(others)", "tests/schedulers/test_vtc.py"),
    Fault(
        "specsim/latency/forms.py",
        "memory if memory > compute else compute",
        "memory",
        "tests/unit/test_latency_forms.py",
    ),
    Fault("specsim/metrics/requests.py", " | (self.done.emitted_tokens <= 1))", ")", SUMMARY),
    Fault("specsim/metrics/summary.py", "in_time = slo_ok & (rows", "in_time = slo_ok | (rows", SUMMARY),
    Fault("specsim/metrics/load.py", "MAKESPAN_RATIO = 1.1", "MAKESPAN_RATIO = 2", "tests/theory/test_load.py"),
    Fault("specsim/config/points.py", "if key in axes:", "if key in axes and not sweep:", MISTAKES),
    Fault(
        "specsim/files/checked_mapping.py",
        "is_number(value) and least <= value",
        "is_number(value) and value",
        MISTAKES,
    ),
    Fault("specsim/config/synonyms.py", " config_path config_dir hydra_searchpath cn cp cd", "", MISTAKES),
    Fault("specsim/runs/hardware.py", 'raise SpecsimError(f"warmup: no r', 'print(f"warmup: no r', MISTAKES),
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
    if whole.count(fault.text) != 1:
        raise SystemExit(f"{fault.file} holds {fault.text!r} {whole.count(fault.text)} times; expected once")
    file.write_text(whole.replace(fault.text, fault.becomes), encoding="utf-8")
    try:
        code = _pytest(fault.pytest, folder)
    finally:
        file.write_text(whole, encoding="utf-8")
    if code not in (0, 1):
        raise SystemExit(f"pytest {fault.pytest}: exit status {code}; expected tests that run")
    return code == 1


def _pytest(given: str, folder: Path) -> int:
    words = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *PLUGIN, *shlex.split(given))
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
            if _pytest(given, folder) != 0:
                print(f"fails without a fault: {given}", flush=True)
        for fault in FAULTS:
            found = is_caught(fault, folder)
            caught += found
            print("caught" if found else "MISSED", fault.file, fault.becomes.strip() or "(left out)", flush=True)
    print(f"{caught} of {len(FAULTS)} faults are caught")
    return int(caught < len(FAULTS))


if __name__ == "__main__":
    raise SystemExit(main())
