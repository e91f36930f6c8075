"""Writes the golden files anew: `python -m tests.golden.make [scheduler ...]`; read what differs, then commit."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.golden.scene import columns_of, played
from tests.laws.subjects import NAMES

DATA = Path(__file__).parent / "data"
FIGURES = 12
"""Significant digits that are written: floats are compared to 1e-9."""


def file_of(name: str) -> Path:
    return DATA / f"{name}.json"


def text_of(name: str) -> str:
    """Return the golden file of a scheduler: one line a column."""
    parts = []
    for part, columns in columns_of(played(name)).items():
        lines = [f"  {json.dumps(column)}: {json.dumps(_rounded(value))}" for column, value in columns.items()]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{FIGURES}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or NAMES:
        file_of(chosen).write_text(text_of(chosen))
        print(f"wrote {file_of(chosen).relative_to(Path.cwd())}")
