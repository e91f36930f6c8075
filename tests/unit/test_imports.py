"""The source read with ast: the arrows of docs/architecture.md, late imports of what is slow, docstrings' subjects."""

import ast
import re
from functools import cache
from inspect import cleandoc
from pathlib import Path

import pytest

import specsim

PACKAGE = Path(specsim.__file__).parent
HEAVY = {"pandas", "matplotlib", "scipy", "pyarrow", "numba"}
SLOW = {*HEAVY, "numpy", "simpy", "hydra", "omegaconf", "yaml", "tqdm"}
ROOMS = [
    *("errors", "rng", "pass_shape", "files", "kernels", "core", "registry", "latency", "acceptance", "workload"),
    *("schedulers", "server", "cluster", "simulated_backend", "plugin", "calibration", "config", "metrics"),
    *("simulation", "figures", "store", "runs", "search", "api", "commands", "cli", "__main__"),
]
"""From below: each imports itself and those before it."""
SEEN = {
    "schedulers": {"core", "registry", "kernels", "rng", "pass_shape", "errors", "schedulers"},
    "latency": {"files", "registry", "pass_shape", "latency"},
    "metrics": {"core", "server", "pass_shape", "errors", "metrics"},
}
"""The rooms that the oracle boundary and the seams leave these rooms to see."""
ABOVE = {"profiler": {"studies", "tools", "tests"}, "tools": {"studies", "tests"}, "studies": {"tests"}}
ABOVE |= {"specsim": {"torch", "transformers", "profiler", "studies", "tools", "tests"}}
"""Of each folder: what it does not import: those above it, and of the package any deep learning library."""
MOST_FILES = 12
"""Of a room; of the schedulers each is a file."""


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


EVERY = [path for folder in ABOVE for path in sorted((PACKAGE.parent / folder).rglob("*.py"))]
FILES = {name_of(path): path for path in EVERY if "_data" not in path.parts}
MODULES = {name: path for name, path in FILES.items() if name.startswith("specsim")}


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "imports are absolute"
    below = [f"{node.module}.{alias.name}" for alias in node.names]
    return [each if each in FILES else node.module for each in below]


@cache
def tree_of(file):
    return ast.parse(file.read_text())


def _statements(body, late, typed=False):
    """Yield import statements; those of functions only when `late`, those for type checkers only when `typed`."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not typed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _statements(node.orelse, late)
        elif late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            below = [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr)]
            yield from _statements(below, late, typed)


@cache
def imports(module, late=False, typed=False):
    """Return the modules that `module` imports when it is loaded, with `late` by functions, `typed` for types too."""
    statements = _statements(tree_of(FILES[module]).body, late, typed)
    return frozenset(name for node in statements for name in _imported(node))


def ours(module, late=False, typed=False):
    return {name for name in imports(module, late, typed) if name in MODULES and name != "specsim"}


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


def room_of(module):
    return module.split(".")[1] if "." in module else module


def test_a_room_is_seen_at_a_glance():
    rooms = {file.parent for folder in ABOVE for file in (PACKAGE.parent / folder).rglob("*.py")}
    for room in rooms - {PACKAGE / "schedulers"}:
        assert len([file for file in room.glob("*.py") if file.stem != "__init__"]) <= MOST_FILES, room


def test_rooms_import_downwards_and_some_see_only_the_seam():
    assert {room_of(module) for module in MODULES} - {"specsim"} == set(ROOMS)
    for module in MODULES.keys() - {"specsim"}:
        below = {*ROOMS[: ROOMS.index(room_of(module)) + 1]}
        above = {room_of(each) for each in ours(module, late=True, typed=True)} - below
        beyond = {room_of(each) for each in ours(module, late=True)} - SEEN.get(room_of(module), below)
        assert not above | beyond, f"{module} imports {above | beyond}"
        if room_of(module) == "schedulers":
            assert not {name.split(".")[0] for name in imports(module, late=True)} & {"simpy", "scipy"}, module


def test_no_two_modules_import_each_other():
    def visit(name, path):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        for lower in imports(name, late=name not in MODULES) & FILES.keys() - {"specsim"}:
            if lower not in done:
                visit(lower, [*path, name])
        done.add(name)

    done = set()
    for module in FILES:
        visit(module, [])
    assert done == FILES.keys()


@pytest.mark.parametrize("folder", ABOVE)
def test_the_package_and_the_folders_beside_it_import_downwards(folder):
    files = sorted((PACKAGE.parent / folder).rglob("*.py"))
    assert files
    for file in files:
        statements = _statements(tree_of(file).body, late=True)
        assert not {name.split(".")[0] for each in statements for name in _imported(each)} & ABOVE[folder], file


@pytest.mark.parametrize(("door", "slow"), [("specsim.cli", SLOW), ("specsim.api", HEAVY)])
def test_the_doors_load_nothing_slow(door, slow):
    loaded = reached(door)
    assert "specsim.errors" in loaded
    assert not {name.split(".")[0] for module in loaded for name in imports(module)} & slow


def test_behind_config_the_keys_of_a_choice_are_handed_to_the_room_that_makes_its_part_and_never_asked():
    for module in MODULES.keys() - {"specsim.search.tune"}:  # It writes them into a file.
        asked = re.search(r"\bcho(sen|ice)[\w.]*\.values(?![,)]).*", MODULES[module].read_text())
        assert not asked or room_of(module) in ROOMS[: ROOMS.index("metrics")], f"{module}: {asked[0]}"


MAY_READ_CLOCKS = {
    f"specsim.{name}" for name in ("commands.run", "commands.sweep", "runs.execute", "runs.processes", "runs.sweep")
}
CLOCK_READS = {"now", "utcnow", "today", "perf_counter", "monotonic", "process_time"}


def test_clocks_and_global_randomness_stand_nowhere_in_the_simulation():
    for module in set(MODULES) - MAY_READ_CLOCKS:
        assert not {"time", "random"} & imports(module, late=True), module
        calls = [node.func for node in ast.walk(tree_of(MODULES[module])) if isinstance(node, ast.Call)]
        read = {call.attr for call in calls if isinstance(call, ast.Attribute)} & CLOCK_READS
        assert not read, f"{module} calls {read}"


PRONOUN = re.compile(
    r"(?i:\b(?:nobody|whoever|those who)\b)|(?:\A|(?<=[.;?!]\s)|(?<=:\s)(?=[A-Z])|(?<=\n\n)|(?<=\n- ))(?i:(?:what|who"
    r"|whatever|somebody|everybody|those that|one (?:that|who|which|whose|is|has|does|may|can|must|of|with|without|goes"
    r"|gets|takes))\b)|(?:(?<=[:,] )|(?<=\bso )|(?<=that )|(?<=and )|(?<=but ))(?:one (?:that|who) \w+ (?:is|are|has)\b"
    r"|what (?:(?:it|they) \w+|\w{3,}s|[^.,;:]* (?:is|are|was|has)\b[^.,;:]*) (?:is|are|has)\b)"
)
PAGES = [*sorted((PACKAGE.parent / "docs").glob("*.md")), PACKAGE.parent / "README.md"]


def docstrings(file):
    """Yield each docstring of a module, of what it defines, and behind its constants; the prose of a page."""
    if file.suffix == ".md":
        text = re.sub(r"(?sm)^```.*?^```$|^\|.*?$", "", file.read_text())
        return [(1, re.sub(r"(?<!\n)\n *(?![\n-])", " ", text))]
    texts = [node for node in ast.walk(tree_of(file)) if isinstance(node, ast.Expr)]
    texts = [node for node in texts if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    return [(node.lineno, re.sub(r"(?<!\n)\n[ ]*(?!\n)", " ", cleandoc(node.value.value))) for node in texts]


def test_no_sentence_of_a_docstring_or_page_has_a_pronoun_for_a_subject():
    found = [
        f"{file.relative_to(PACKAGE.parent)}:{line}: {text[match.start() : match.start() + 60]!r}"
        for file in [*EVERY, *PAGES]
        for line, text in docstrings(file)
        for match in PRONOUN.finditer(text)
    ]
    assert not found, "\n".join(found)
