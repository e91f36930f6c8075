"""The modules of the pages and the examples, checked as their authors would, with the types that specsim ships."""

import re
import subprocess
import sys

import pytest

from tests import MYPY_CACHE
from tests.e2e.test_examples import EXAMPLES
from tests.e2e.test_kinds import MODULES, block
from tests.e2e.test_python_page import BLOCKS
from tests.e2e.test_your_scheduler import block as block_of_schedulers

PROTOCOLS = {"log_lines.LogLines": "TraceReader", "two_kinds.TwoKinds": "AcceptanceModel", "remote.Remote": "Drafter"}
WRONG = {
    "calls.py": ("from specsim import simulate\n\nsimulate(7, slo=3.5, rps='2')\n", ["[arg-type]"] * 3),
    "view.py": (
        "from specsim.plugin import View\n\n\ndef f(view: View) -> str:\n    return view.now_s\n",
        ['expected "str"'],
    ),
}
CONFIG = """
[mypy]
follow_imports = silent
[mypy-IPython.*,dask.*,distributed.*,optuna.*,ray.*,scipy.*,torch.*,transformers.*]
follow_imports = skip
"""
"""Of the package, which `make lint` checks, the types are read, and no library of which it shows none."""


def protocols() -> str:
    """Return a module that takes each class for its protocol, and a drafter for a trace reader, too."""
    lines = [f"from specsim.plugin import {', '.join(PROTOCOLS.values())}"]
    lines += [f"import {each.partition('.')[0]}" for each in PROTOCOLS]
    lines += [f"def f_{name}(made: {target}) -> {name}:\n    return made" for target, name in PROTOCOLS.items()]
    return "\n".join([*lines, "def wrong(made: remote.Remote) -> TraceReader:\n    return made"]) + "\n"


@pytest.mark.slow
def test_every_module_that_is_shown_is_typed(tmp_path):
    shown = dict(BLOCKS) | {f"{module}.py": block(group, "python", "class") for group, module in MODULES.items()}
    shown |= {"shortest_first.py": block_of_schedulers("python", "class ShortestFirst"), "protocols.py": protocols()}
    shown |= {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES}
    expected = {"protocols.py": ['expected "TraceReader"']} | {name: said for name, (_, said) in WRONG.items()}
    for name, text in (shown | {name: text for name, (text, _) in WRONG.items()}).items():
        (tmp_path / name).write_text(text)
    names = sorted(shown.keys() | WRONG.keys())
    (tmp_path / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(MYPY_CACHE), *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = re.findall(r"^(\w+\.py):\d+: error: (.*)$", done.stdout, re.MULTILINE)
    assert sorted({name for name, _ in errors}) == sorted(expected), done.stdout + done.stderr
    for name, said in expected.items():
        found = [line for file, line in errors if file == name]
        assert len(found) == len(said), found
        assert all(each in line for each, line in zip(said, found, strict=True)), found
