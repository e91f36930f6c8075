"""Files that tests read: pages of docs/ with blocks of code and commands of specsim, and folders of runs."""

import json
import re
import shlex
import tomllib
from itertools import chain
from pathlib import Path

from specsim.store.runs import sealed

ROOT = Path(__file__).parents[1]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of code."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def block(text: str, kind: str, holding: str = "") -> str:
    """Return the first block in a language that holds a text."""
    return next(each for name, each in blocks(text) if name == kind and holding in each)


def package(folder: Path, name: str, pyproject: str) -> None:
    """Lay out what pip would of a package, beside its modules: a dist-info with the entry points of a project."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = tomllib.loads(pyproject)["project"]["entry-points"]
    lines = [[f"[{group}]", *(f"{key} = {value}" for key, value in each.items())] for group, each in points.items()]
    (info / "entry_points.txt").write_text("\n".join(chain(*lines)))


def commands(text: str) -> list[list[str]]:
    """Return the words behind `$ specsim` of each line that begins so."""
    return [shlex.split(each) for each in re.findall(r"^\$ specsim (.*)$", text, re.MULTILINE)]


def contents(root: Path, *without: str) -> dict[str, bytes]:
    """Return the bytes of every file below a folder by its path there, without those of some names."""
    kept = (path for path in root.rglob("*") if path.is_file() and path.name not in without)
    return {str(path.relative_to(root)): path.read_bytes() for path in kept}


def run_in(root: Path, label: str) -> Path:
    """Return the folder of the run of a sweep whose point is `label`."""
    (found,) = root.glob(f"{label}-*")
    return found


def reseal(run: Path, **changes: object) -> None:
    """Let the provenance of a stored run say `changes`, and agree with its files as they are now."""
    told = json.loads((run / "provenance.json").read_bytes()) | changes
    kept = {key: value for key, value in told.items() if key not in ("files", "sha256")}
    (run / "provenance.json").write_text(json.dumps(sealed(kept, run)))
