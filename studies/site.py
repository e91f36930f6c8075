"""The figures of the studies' pages, which `mkdocs` draws into its site, in the place of their captions."""

from __future__ import annotations

import re
import sys
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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Draw each figure, and show it where its page has the caption."""
    sys.path.insert(0, str(ROOT))  # `mkdocs` loads this file by its path
    drawn = _drawn()
    for page in PAGES:
        text = files.src_uris[page].content_string
        for _, place, name in NAMED.findall(text):
            held = BytesIO()
            drawn[name].savefig(held, format="png", bbox_inches="tight")
            if place in files.src_uris:
                files.remove(files.src_uris[place])
            files.append(File.generated(config, place, content=held.getvalue()))
        files.remove(files.src_uris[page])
        files.append(File.generated(config, page, content=NAMED.sub(r"![\1](\2)", text)))
    return files


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
