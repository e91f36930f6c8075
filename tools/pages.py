"""Pages that `mkdocs` adds to docs/: the README and others, and a page for each linked file of the repository."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ABOVE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "traces/README.md": "trace-files.md",
}
"""Files outside docs/ that are pages of the site, with the page of each."""
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
SHOWN = {".yaml": "yaml", ".py": "python", ".md": "text", ".csv": "text", ".jsonl": "json"}
"""Suffixes of the files of a linked folder that its page shows, with their languages."""
COPIED = ".parquet"
"""The suffix of linked files that the site holds as they are."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and those that links lead to."""
    texts = {}
    for path, page in ABOVE.items():
        texts[page] = _linked((ROOT / path).read_text(encoding="utf-8"), posixpath.dirname(path), page)
    for file in files.documentation_pages():
        texts[file.src_uri] = _linked(file.content_string, "docs/" + posixpath.dirname(file.src_uri), file.src_uri)
    wanted = {name for text in texts.values() for name in re.findall(r"\]\((?:\.\./)*files/([^)#]+)\.md", text)}
    texts |= {f"files/{name}.md": _shown(ROOT / name) for name in wanted}
    for name in {name for text in texts.values() for name in re.findall(rf"files/([^)#]+\{COPIED})\)", text)}:
        files.append(File.generated(config, f"files/{name}", content=(ROOT / name).read_bytes()))
    for page, text in texts.items():
        made = File.generated(config, page, content=text)
        if page.startswith("files/"):
            made.inclusion = made.inclusion.NOT_IN_NAV
        if page in files.src_uris:
            files.remove(files.src_uris[page])
        files.append(made)
    return files


def _linked(text: str, folder: str, page: str) -> str:
    """Return the text of a page in the repository's `folder`, with links that are right for the site's page `page`."""

    def there(link: re.Match[str]) -> str:
        opening, target, anchor, closing = link.groups(default="")
        if ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if not (ROOT / path).exists():
            raise PluginError(f"{page}: the link {target} leads to no file of the repository")
        return f"{opening}{posixpath.relpath(_page(path), posixpath.dirname(page))}{anchor}{closing}"

    return LINK.sub(there, text)


def _page(path: str) -> str:
    if path in ABOVE:
        return ABOVE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}" if path.endswith(COPIED) else f"files/{path}.md"


def _shown(path: Path) -> str:
    """Return a page with the text of a file, or of all files in a folder."""
    if path.suffix == ".ipynb":
        return _notebook(path)
    title = f"# `{path.relative_to(ROOT).as_posix()}`\n"
    if path.is_file():
        return title + _block(path)
    below = sorted(each for each in path.rglob("*") if each.suffix in SHOWN and "__pycache__" not in each.parts)
    others = [f"- `{each.name}`\n" for each in sorted(path.iterdir()) if each.is_file() and each not in below]
    return "\n".join([title, *others, *(f"## `{each.relative_to(path).as_posix()}`\n{_block(each)}" for each in below)])


def _notebook(path: Path) -> str:
    """Return the page of a notebook: its prose, and its code as blocks."""
    name = path.relative_to(ROOT).as_posix()
    told = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        told.append(text if cell["cell_type"] == "markdown" else f"````python\n{text}\n````")
    return _linked("\n\n".join(told) + "\n", posixpath.dirname(name), f"files/{name}.md")


def _block(path: Path) -> str:
    return f"\n````{SHOWN[path.suffix]}\n{path.read_text(encoding='utf-8')}````\n"
