"""What counts as a plug-in's code: its file, what it imports from beside it, and nothing from elsewhere."""

import importlib
import sys
from types import ModuleType

import pytest

from specsim.core.user_code import own_modules
from specsim.registry import load_plugins
from specsim.runs import provenance
from specsim.runs.provenance import package_sha256, plugins_sha256
from specsim.schedulers.composed import Composed
from specsim.schedulers.sarathi import TokenBudget
from specsim.schedulers.vllm_spec import FixedChains
from tests.made import refusal

FILES = {
    "plug_in.py": "import json\nfrom plug_sizes import SIZE\nfrom plug_package.inner import deep\n",
    "plug_sizes.py": "SIZE = 1\n\n\ndef step():\n    from plug_late import X\n",
    "plug_late.py": "X = 1\n",
    "plug_other.py": "from plug_package import late\n",
    "plug_package/__init__.py": "from .inner import deep\n",
    "plug_package/inner.py": "def deep():\n    from plug_package import late\n",
    "plug_package/late.py": "X = 1\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget()


def forget():
    for name in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[name]


def checksum():
    """Return it as a new session would, before any function of the plug-in has run."""
    forget()
    importlib.invalidate_caches()
    found = plugins_sha256([importlib.import_module("plug_in")])["plug_in"]
    assert "plug_late" not in sys.modules
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_plug_in_is_its_file_and_what_it_imports_from_beside_it(folder, name):
    before = checksum()
    assert checksum() == before
    with (folder / name).open("a") as file:
        file.write("# edited\n")
    assert (checksum() != before) == (name != "plug_other.py")


@pytest.mark.parametrize("name", ["plug_in.py", "plug_sizes.py"])
def test_a_file_that_changed_after_its_import_is_refused(folder, name):
    """The code in memory is the old one: its numbers must not pass for those of the new file."""
    module = importlib.import_module("plug_in")
    plugins_sha256([module])
    (folder / name).write_text(FILES[name] + "# edited\n")
    assert f"{name}' has changed since it was imported" in refusal(plugins_sha256, [module])


def test_a_file_is_loaded_anew_with_its_imports_from_beside_it_and_two_of_one_name_are_refused(folder):
    mine, other = str(folder / "plug_in.py"), str(folder / "plug_package/plug_in.py")
    assert len({load_plugins([mine])["plug_in"].deep for _ in range(2)}) == 2
    assert [*load_plugins([mine, str(folder / "plug_package/../plug_in.py")])] == ["plug_in"], "one file, named twice"
    sizes = load_plugins([str(folder / "plug_sizes.py"), mine])["plug_sizes"]
    (folder / "plug_sizes.py").write_text("SIZE = 2\n")
    assert (load_plugins([]), sys.modules["plug_sizes"], load_plugins([mine])["plug_in"].SIZE) == ({}, sizes, 2)
    load_plugins([])
    importlib.import_module("plug_package")
    assert len({load_plugins([str(folder / "plug_other.py")])["plug_other"].late for _ in range(2)}) == 2
    (folder / "plug_package/plug_in.py").write_text("\n{}['mine']\n")
    assert f"{mine!r} and {other!r} are both 'plug_in'" in refusal(load_plugins, [mine, other])
    with pytest.raises(Exception, match=r"KeyError: 'mine' \(.*plug_in.py:2\)$") as found:
        load_plugins([other])
    assert isinstance(found.value.__cause__, KeyError)


def test_code_that_no_file_holds_has_no_checksum(monkeypatch):
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    typed = ModuleType("__main__")
    typed.__file__ = __file__
    assert plugins_sha256([typed, ModuleType("compiled")]) == {"__main__": None, "compiled": None}


def test_the_code_of_a_part_counts():
    part = type("Part", (FixedChains,), {"__module__": __name__})
    assert own_modules(Composed(TokenBudget(8, 512, 0.0), part(3))) == {__name__}


def test_every_file_of_specsims_own_counts(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    monkeypatch.setattr(provenance, "folder_sha256", provenance.folder_sha256.__wrapped__)
    found = []
    for name, text in zip(["a.py", "b/c.py", "a.py", "b/c.py", "b/d.py", "notes.txt"], "112234", strict=True):
        (tmp_path / name).write_text(text)
        found.append(package_sha256.__wrapped__())
    assert [found.index(each) for each in found] == [0, 1, 2, 3, 4, 4]
