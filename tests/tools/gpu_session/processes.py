"""Processes of a session."""

from __future__ import annotations

from pathlib import Path


def is_alive(pid):
    """Return whether a process runs; a zombie waits for its parent only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
