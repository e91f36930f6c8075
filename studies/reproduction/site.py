"""The figures of reproduction.md, which `mkdocs` draws into its site."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGE = "reproduction.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Draw each figure that has rows, and show it below its heading."""
    sys.path.insert(0, str(ROOT))  # `mkdocs` loads this file by its path
    from specsim.figures.style import style
    from studies.reproduction.__main__ import OUT
    from studies.reproduction.comparison import read_rows
    from studies.reproduction.experiment import experiments
    from studies.reproduction.page import FIGURES
    from studies.reproduction.plot import drawn

    text = files.src_uris[PAGE].content_string
    for experiment in experiments():
        for figure in experiment.figures:
            found = read_rows(experiment, figure, ROOT / OUT)
            if found is None:
                continue
            held, heading, name = BytesIO(), f"#### {figure.name}\n", f"{FIGURES}/{figure.name}.png"
            with style():
                drawn(found).savefig(held, format="png")
            files.append(File.generated(config, name, content=held.getvalue()))
            text = text.replace(heading, f"{heading}\n![Published points and our lines: {figure.label}]({name})\n")
    files.remove(files.src_uris[PAGE])
    files.append(File.generated(config, PAGE, content=text))
    return files
