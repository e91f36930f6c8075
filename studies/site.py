"""The figures of the studies' pages, which `mkdocs` draws into its site, in the place of their captions."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PAGES = ("fidelity.md", "h200.md", "policies.md", "speedups.md")
NAMED = re.compile(r"\*On the site \(`make docs`\): ([^*]*)\.\* <!-- (figures/(\w+)\.png) -->")
"""As `studies.report.without_images` writes it."""
REPRODUCTION = "reproduction.md"
"""The page whose figures stand below their headings."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Draw each figure, and show it where its page has the caption, or below the heading of its name."""
    sys.path.insert(0, str(ROOT))  # `mkdocs` loads this file by its path

    def add(name: str, content: str | bytes) -> None:
        if name in files.src_uris:
            files.remove(files.src_uris[name])
        files.append(File.generated(config, name, content=content))

    def draw(name: str, figure: Figure, tight: str | None = None) -> None:
        held = BytesIO()
        figure.savefig(held, format="png", bbox_inches=tight)
        add(name, held.getvalue())

    drawn = _drawn()
    for page in PAGES:
        text = files.src_uris[page].content_string
        for _, place, name in NAMED.findall(text):
            draw(place, drawn[name], "tight")
        add(page, NAMED.sub(r"![\1](\2)", text))
    text = files.src_uris[REPRODUCTION].content_string
    for name, label, figure in _reproduced():
        place = f"figures/{name}.png"
        draw(place, figure)
        shown = f"![Published points and our lines: {label}]({place})"
        text = text.replace(f"#### {name}\n", f"#### {name}\n\n{shown}\n")
    add(REPRODUCTION, text)
    return files


def _reproduced() -> Iterator[tuple[str, str, Figure]]:
    """Yield name, label and drawing of each published figure that has rows."""
    from specsim.figures.style import style
    from studies.reproduction.__main__ import OUT
    from studies.reproduction.comparison import read_rows
    from studies.reproduction.experiment import experiments
    from studies.reproduction.plot import drawn

    with style():
        for experiment in experiments():
            for figure in experiment.figures:
                found = read_rows(experiment, figure, ROOT / OUT)
                if found is not None:
                    yield figure.name, figure.label, drawn(found)


def _drawn() -> dict[str, Figure]:
    from profiler.fidelity import figures as fidelity
    from profiler.fidelity.tables import read_tables
    from profiler.fidelity.verdicts import run_verdicts
    from studies.h200 import page as h200
    from studies.policies import page as policies
    from studies.policies import running as policies_running
    from studies.report import kept
    from studies.speedups import figures as speedups
    from studies.speedups import running as speedups_running

    tables, rows = read_tables(ROOT / "results" / "fidelity" / "cpu"), kept(speedups_running.KEPT)
    return {
        "fidelity_runs": fidelity.runs(run_verdicts(tables.cells)),
        "fidelity_passes": fidelity.passes(tables.passes),
        "h200": h200.figure(),
        "policies": policies.figure(kept(policies_running.KEPT)),
        "speedups": speedups.by_batch(rows),
        "break_even": speedups.break_even(rows),
    }
