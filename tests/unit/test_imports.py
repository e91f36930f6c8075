"""The arrows of the architecture, read from the source with ast: who may import whom, and when."""

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import specsim

PACKAGE = Path(specsim.__file__).parent
SLOW = {"numpy", "pandas", "matplotlib", "scipy", "pyarrow", "simpy", "hydra", "omegaconf", "yaml", "tqdm", "numba"}
HEAVY = {"pandas", "matplotlib", "scipy", "pyarrow", "numba"}


def name_of(path):
    parts = ["specsim", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if "_data" not in path.parts}


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "imports are absolute"
    below = [f"{node.module}.{alias.name}" for alias in node.names]
    return [each if each in MODULES else node.module for each in below]


def _statements(body, late):
    """Yield import statements; those of functions only when `late`, those for type checkers never."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _statements(node.orelse, late)
        elif late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _statements(list(ast.iter_child_nodes(node)), late)


@cache
def imports(module, late=False):
    """Return the modules that `module` imports when it is loaded, and with `late` those of its functions too."""
    tree = ast.parse(MODULES[module].read_text())
    return frozenset(name for node in _statements(tree.body, late) for name in _imported(node))


def ours(module, late=False):
    return {name for name in imports(module, late) if name in MODULES and name != "specsim"}


def reached(module):
    """Return every module of ours that is loaded with `module`, packages above included."""
    found, left = set(), [module]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        above = [".".join(name.split(".")[:depth]) for depth in range(1, name.count(".") + 1)]
        left += [*above, *ours(name)]
    return found


def below(prefix):
    return [name for name in MODULES if name == prefix or name.startswith(f"{prefix}.")]


CORE = ["specsim.request", "specsim.forest", "specsim.work", "specsim.protocols"]


@pytest.mark.parametrize("place", range(len(CORE)))
def test_the_core_is_a_line(place):
    assert ours(CORE[place], late=True) <= set(CORE[:place])


def test_the_core_arrows_are_all_there():
    """A test of the test: without edges the line above would hold of nothing."""
    for lower, upper in pairwise(CORE):
        assert lower in ours(upper)


def test_the_ledger_rests_on_the_core_and_the_memory():
    assert "specsim.protocols" in ours("specsim.ledger")
    rests_on = {*CORE, "specsim.memory", "specsim.errors", "specsim.state", "specsim.roster"}
    assert ours("specsim.ledger", late=True) <= {*rests_on, "specsim.drafts", "specsim.legality"}
    assert ours("specsim.drafts", late=True) | ours("specsim.legality", late=True) <= {*CORE, "specsim.errors"}
    assert ours("specsim.roster", late=True) <= {"specsim.errors", "specsim.request"}
    assert ours("specsim.memory", late=True) <= {"specsim.request"}


SCHEDULER_MAY = {*CORE, "specsim.errors", "specsim.rng", *below("specsim.schedulers")}


@pytest.mark.parametrize("module", below("specsim.schedulers"))
def test_schedulers_know_the_protocols_and_nothing_behind_them(module):
    assert ours(module, late=True) <= SCHEDULER_MAY
    assert not {name.split(".")[0] for name in imports(module, late=True)} & {"simpy", "scipy", "pandas"}


@pytest.mark.parametrize("module", below("specsim.world"))
def test_the_world_rests_on_the_work_and_the_latency(module):
    allowed = {*CORE, "specsim.errors", "specsim.reading", "specsim.regular_file", "specsim.rng"}
    assert ours(module, late=True) <= {*allowed, *below("specsim.world")}


@pytest.mark.parametrize("module", below("specsim.latency"))
def test_latency_models_know_no_scheduler_and_no_engine(module):
    assert ours(module, late=True) <= {
        *CORE,
        "specsim.errors",
        "specsim.reading",
        "specsim.yaml_file",
        *below("specsim.latency"),
    }


@pytest.mark.parametrize("module", below("specsim.workload"))
def test_the_workload_knows_requests_and_files_only(module):
    allowed = {f"specsim.{each}" for each in ("request", "errors", "reading", "regular_file", "rng", "paths")}
    assert ours(module, late=True) <= {*allowed, *below("specsim.workload")}


@pytest.mark.parametrize("module", below("specsim.metrics"))
def test_metrics_neither_simulate_nor_schedule(module):
    """Only the recorder hears of the ledger: what a verification left between tokens."""
    told = {"specsim.ledger"} if module == "specsim.metrics.recorder" else set()
    assert ours(module, late=True) <= {
        *CORE,
        "specsim.errors",
        "specsim.reading",
        "specsim.regular_file",
        *below("specsim.metrics"),
        *told,
    }


def test_reading_knows_nothing_but_the_errors_and_is_how_every_room_reads():
    assert ours("specsim.reading", late=True) == {"specsim.errors"}
    assert not imports("specsim.reading") & SLOW
    for module in ("latency.profile", "latency.drafter", "workload.slo", "workload.entry", "world.curves"):
        assert "specsim.reading" in ours(f"specsim.{module}")


LEVELS = [
    {"specsim.engine"},
    {"specsim.simulation"},
    {"specsim.experiment"},
    {
        "specsim.config",
        "specsim.groups",
        "specsim.idle",
        "specsim.identity",
        "specsim.points",
        "specsim.provenance",
        "specsim.suggestions",
    },
    {"specsim.places", "specsim.resume", "specsim.scan"},
    {"specsim.plan", "specsim.sweeps"},
    {"specsim.execution", "specsim.completion"},
    {"specsim.sweep_execution"},
    {"specsim.api", "specsim.run_command"},
    {"specsim.cli"},
    {"specsim.__main__"},
]


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_nothing_imports_what_stands_above_it(level):
    """`specsim/__init__` offers the api by name; `experiment` may ask the config for the names of profiles, late."""
    above = set().union(*LEVELS[level:])
    permitted = {"specsim", *above}
    for module in set(MODULES) - permitted:
        found = ours(module) & above
        late = ours(module, late=True) & above
        assert not found, f"{module} imports {found}"
        assert not late, f"{module} imports {late}"


def test_only_the_engine_and_the_simulation_know_the_clock():
    assert {name for name in MODULES if "simpy" in imports(name, late=True)} == {"specsim.engine", "specsim.simulation"}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_needs_the_profiler_or_a_deep_learning_library(module):
    heads = {name.split(".")[0] for name in imports(module, late=True)}
    assert not heads & {"torch", "transformers", "profiler", "tests"}


def test_no_two_modules_import_each_other():
    def visit(name, path):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        for lower in ours(name):
            if lower not in done:
                visit(lower, [*path, name])
        done.add(name)

    done: set[str] = set()
    for module in MODULES:
        visit(module, [])
    assert done == set(MODULES)


def test_the_command_line_loads_nothing_slow():
    loaded = {name.split(".")[0] for module in reached("specsim.cli") for name in imports(module)}
    assert not loaded & SLOW
    assert "specsim.errors" in reached("specsim.cli")


def test_the_api_loads_no_tables_figures_or_statistics():
    loaded = {name.split(".")[0] for module in reached("specsim.api") for name in imports(module)}
    assert not loaded & HEAVY
    assert len(reached("specsim.api")) > 10


CLOCK_READS = {"now", "utcnow", "today", "perf_counter", "monotonic", "process_time"}


def test_clocks_and_global_luck_stand_nowhere_in_the_simulation():
    """Only the engine advances time; wall-clock reads belong to the execution and the command line."""
    may_read = {"specsim.execution", "specsim.sweep_execution", "specsim.run_command"}
    for module in set(MODULES) - may_read:
        assert not {"time", "random"} & imports(module, late=True), module
        calls = [node.func for node in ast.walk(ast.parse(MODULES[module].read_text())) if isinstance(node, ast.Call)]
        read = {call.attr for call in calls if isinstance(call, ast.Attribute)} & CLOCK_READS
        assert not read, f"{module} calls {read}"
