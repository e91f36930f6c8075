"""The pages of docs/: their links lead somewhere, and `make docs` builds all of them without a warning."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import specsim
from specsim import plugin

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(?:https?:)?//(?!www\.w3\.org)[^>]+>")


@cache
def headings(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), link
        assert not anchor or anchor in headings(there), link


def test_the_glossary_names_what_is_there() -> None:
    """A name in the second column stands in some file of the code, or is a number that docs/metrics.md defines."""
    rows = re.findall(r"^\| \*\*.+?\*\* \| (.*?) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 40
    code = (ROOT / "docs/metrics.md").read_text(encoding="utf-8") + "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("specsim", "conf", "profiler")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml")
    )
    for name in (name for row in rows for name in re.findall(r"`([^`]+)`", row)):
        assert re.search(rf"\b{re.escape(name.rpartition('.')[2].rstrip('='))}\b", code), name


@pytest.mark.slow
def test_the_site_builds_without_a_warning_holds_all_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    site = tmp_path / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).exists(), page.name
    assert "discrete-event simulator" in (site / "index.html").read_text(encoding="utf-8")
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<!-- figures" not in text, page
        assert all((site / image).is_file() for image in re.findall(r'<img[^>]* src="([^":]+)"', text)), page
    for name, public in (("specsim", specsim.__all__), ("plugin", plugin.__all__)):
        reference = (site / "api" / f"{name}.html").read_text(encoding="utf-8")
        assert set(public) <= {each.rpartition(".")[2] for each in re.findall(r'<h\d id="(specsim[\w.]*)"', reference)}
    for page in site.rglob("*.html"):
        assert not ELSEWHERE.findall(page.read_text(encoding="utf-8")), page
    assert not [style for style in site.rglob("*.css") if "url(http" in style.read_text(encoding="utf-8")]
