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


CORE = ["specsim.replica.request", "specsim.replica.trees", "specsim.replica.passes", "specsim.replica.protocols"]
SHAPE = "specsim.pass_shape"
KERNEL_SHAPES = "specsim.kernels.growth"
"""Says which column of a forest is which."""
BOOKS = {"specsim.kernels.books"}
"""The arithmetic of a ledger."""


@pytest.mark.parametrize("place", range(len(CORE)))
def test_the_core_is_a_line(place):
    assert ours(CORE[place], late=True) <= {SHAPE, KERNEL_SHAPES, *CORE[:place]}


def test_the_core_arrows_are_all_there():
    """A test of the test: without edges the line above would hold of nothing."""
    for lower, upper in pairwise(CORE):
        assert lower in ours(upper)


def test_the_ledger_rests_on_the_core_and_the_memory():
    assert "specsim.replica.passes" in ours("specsim.replica.ledger")
    rests_on = {
        SHAPE,
        *BOOKS,
        *CORE,
        "specsim.replica.kv_pool",
        "specsim.errors",
        "specsim.replica.state",
        "specsim.replica.roster",
    }
    assert ours("specsim.replica.ledger", late=True) <= {
        *rests_on,
        "specsim.replica.ahead",
        "specsim.replica.caches",
        "specsim.replica.draft_cache",
        "specsim.replica.drafts",
        "specsim.replica.prefix_cache",
        "specsim.replica.emissions",
        "specsim.replica.legality",
    }
    assert ours("specsim.replica.draft_cache", late=True) <= {*rests_on, "specsim.replica.legality"}
    assert ours("specsim.replica.drafts", late=True) | ours("specsim.replica.legality", late=True) <= {
        *CORE,
        "specsim.errors",
    }
    assert ours("specsim.replica.roster", late=True) <= {"specsim.errors", "specsim.replica.request"}
    assert ours("specsim.replica.kv_pool", late=True) <= {*BOOKS, "specsim.replica.request"}


ROOMS = {
    "specsim": {"api", "errors"},
    "errors": set(),
    "lines": set(),
    "rng": set(),
    "pass_shape": set(),
    "files": {"errors"},
    "replica": {"kernels", "pass_shape", "errors"},
    "kernels": {"pass_shape", "rng", "files", "lines"},
    "kinds": {"replica", "files", "errors"},
    "schedulers": {"kinds", "kernels", "replica", "pass_shape", "rng", "errors"},
    "routers": {"kinds", "replica", "rng", "errors"},
    "latency": {"kinds", "pass_shape", "files"},
    "workload": {"kinds", "replica", "files", "rng", "errors"},
    "calibration": {"latency", "workload", "pass_shape", "errors"},
    "world": {"kinds", "kernels", "replica", "pass_shape", "files", "rng", "errors"},
    "config": {"kinds", "files", "errors"},
    "results": {"replica", "pass_shape", "errors", "lines"},
    "store": {"results", "workload", "config", "files", "errors"},
    "figures": {"store", "results", "replica", "files", "errors"},
    "plugin": {"latency", "pass_shape", "replica", "rng", "schedulers", "workload", "world"},
    "simulation": {"results", "routers", "world", "kernels", "replica", "errors"},
    "runs": {
        "figures",
        "store",
        "results",
        "simulation",
        "config",
        "schedulers",
        "routers",
        "kinds",
        "kernels",
        "world",
        "latency",
        "workload",
        "replica",
        "pass_shape",
        "files",
        "errors",
        "lines",
    },
    "api": {"runs", "store", "results", "config", "workload", "latency", "replica", "files", "errors", "lines"},
    "commands": {
        "calibration",
        "figures",
        "runs",
        "store",
        "results",
        "config",
        "latency",
        "workload",
        "files",
        "errors",
        "lines",
    },
    "cli": {"commands", "api", "runs", "store", "results", "config", "workload", "files", "errors", "lines"},
    "__main__": {"cli"},
}
"""What stands in each room may import its own and these. No room is reached from below, but for what `DRAWS` says."""
DRAWS = {"specsim.results.found", "specsim.results.iteration", "specsim.store.runs", "specsim.store.sweeps"}
"""A stored run, a sweep, a search and an iteration can be drawn, and load the figures when they are asked to."""


def room_of(module):
    return module.split(".")[1] if "." in module else module


@pytest.mark.parametrize("module", MODULES)
def test_each_module_imports_what_its_room_may(module):
    rooms = {room_of(each) for each in ours(module, late=True)}
    assert rooms <= {room_of(module), *ROOMS[room_of(module)], *({"figures"} if module in DRAWS else ())}
    assert "figures" not in {room_of(each) for each in ours(module)} or room_of(module) in ("figures", "runs")


def test_no_room_may_import_one_that_may_import_it():
    """`specsim/__init__` offers the api by name, late; whoever asks it for its version stands above."""
    left = {room: may - {"specsim"} for room, may in ROOMS.items()}
    while left:
        free = {room for room, may in left.items() if not may & set(left)}
        assert free, f"a circle among {sorted(left)}"
        left = {room: may for room, may in left.items() if room not in free}


def test_every_permission_is_used():
    used = {(room_of(name), room_of(each)) for name in MODULES for each in imports(name, late=True) if each in MODULES}
    assert {(room, each) for room, may in ROOMS.items() for each in may} <= used


@pytest.mark.parametrize("module", below("specsim.schedulers"))
def test_schedulers_know_the_protocols_and_nothing_behind_them(module):
    assert {each for each in ours(module, late=True) if room_of(each) == "replica"} <= set(CORE)
    assert not {name.split(".")[0] for name in imports(module, late=True)} & {"simpy", "scipy", "pandas"}


@pytest.mark.parametrize("module", below("specsim.routers"))
def test_routers_know_their_seam_alone(module):
    assert {each for each in ours(module, late=True) if room_of(each) == "replica"} <= {"specsim.replica.routing"}


@pytest.mark.parametrize("module", [*below("specsim.world"), *below("specsim.latency"), *below("specsim.workload")])
def test_the_world_its_times_and_its_load_know_the_core_alone(module):
    assert {each for each in ours(module, late=True) if room_of(each) == "replica"} <= set(CORE)


@pytest.mark.parametrize("module", [*below("specsim.results"), *below("specsim.figures")])
def test_results_neither_simulate_nor_schedule(module):
    """Only the recorder hears of passes, and only the record and its table read what has happened in the end."""
    heard = {"recorder": "booking", "record": "state", "request_table": "state"}
    heard = {f"specsim.results.{name}": each for name, each in heard.items()}
    told = {f"specsim.replica.{heard[module]}"} if module in heard else set()
    assert {each for each in ours(module, late=True) if room_of(each) == "replica"} <= {*CORE, *told}


def test_reading_knows_nothing_but_the_errors_and_is_how_every_room_reads():
    assert ours("specsim.files.checked_mapping", late=True) == {"specsim.errors"}
    assert not imports("specsim.files.checked_mapping") & SLOW
    for module in ("latency.profile", "latency.drafter", "workload.slo", "workload.entry", "world.curves"):
        assert "specsim.files.checked_mapping" in ours(f"specsim.{module}")


def test_only_who_serves_and_who_sends_know_the_clock():
    assert {name for name in MODULES if "simpy" in imports(name, late=True)} == {
        "specsim.replica.arrivals",
        "specsim.replica.clients",
        "specsim.replica.engine",
        "specsim.replica.fast_forward",
        "specsim.replica.split",
        "specsim.simulation",
    }


@pytest.mark.parametrize("module", MODULES)
def test_no_module_needs_the_profiler_or_a_deep_learning_library(module):
    heads = {name.split(".")[0] for name in imports(module, late=True)}
    assert not heads & {"torch", "transformers", "profiler", "studies", "tools", "tests"}


ABOVE = {"profiler": {"studies", "tools", "tests"}, "tools": {"studies", "tests"}, "studies": {"tests"}}
"""Of each folder beside the package: those that import it, and are not imported by it."""


@pytest.mark.parametrize("folder", ABOVE)
def test_the_folders_beside_the_package_import_downwards(folder):
    files = sorted((PACKAGE.parent / folder).rglob("*.py"))
    assert files
    for file in files:
        statements = _statements(ast.parse(file.read_text()).body, late=True)
        assert not {name.split(".")[0] for each in statements for name in _imported(each)} & ABOVE[folder], file


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
    may_read = {
        "specsim.commands.run",
        "specsim.commands.sweep",
        "specsim.runs.execute",
        "specsim.runs.processes",
        "specsim.runs.sweep",
        "specsim.runs.tally",
    }
    for module in set(MODULES) - may_read:
        assert not {"time", "random"} & imports(module, late=True), module
        calls = [node.func for node in ast.walk(ast.parse(MODULES[module].read_text())) if isinstance(node, ast.Call)]
        read = {call.attr for call in calls if isinstance(call, ast.Attribute)} & CLOCK_READS
        assert not read, f"{module} calls {read}"
