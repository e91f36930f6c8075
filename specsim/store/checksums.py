"""Checksums of a run's files, kept in its provenance: they tell whether a folder is unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from specsim.store.run_folder import FILES, PROVENANCE_FILE

CHECKSUMS, OWN = "files", "sha256"
CHECKED = tuple(name for name in FILES if name != PROVENANCE_FILE)


def sealed(provenance: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a provenance with the checksums of the run's files in `folder`, and of all its other content."""
    files = {name: _of_file(folder / name) for name in CHECKED if (folder / name).exists()}
    whole = {**provenance, CHECKSUMS: files}
    return {**whole, OWN: _of_content(whole)}


def damage(folder: Path) -> str | None:
    """Return which file of the run in `folder` has changed since the run wrote it; None if none has.

    ``provenance.json`` holds the checksums of the other files, and of its own content except that checksum.
    """
    if (folder / PROVENANCE_FILE).exists() and not (folder / PROVENANCE_FILE).is_file():
        return f"{PROVENANCE_FILE} is no regular file"
    try:
        provenance = json.loads((folder / PROVENANCE_FILE).read_bytes())
        own = provenance.pop(OWN, None)
        files = dict(provenance.get(CHECKSUMS, {}))
    except FileNotFoundError:
        return f"{PROVENANCE_FILE} is missing"
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return f"{PROVENANCE_FILE} is damaged"
    if own is None and not files:
        return f"{PROVENANCE_FILE} holds no checksums, as older versions wrote it"
    if own != _of_content(provenance):
        return f"{PROVENANCE_FILE} is damaged"
    for name in CHECKED:
        try:
            there = _of_file(folder / name)
        except FileNotFoundError:
            there = None
        except OSError:
            return f"{name} cannot be read"
        if there != files.get(name):
            return f"{name} is {'missing' if there is None else 'damaged'}"
    return None


def _of_file(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise OSError("no regular file")
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _of_content(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
