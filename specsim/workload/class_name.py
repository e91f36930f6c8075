"""Rules for the name of an SLO class, which tables, figures and files write as it is."""

from __future__ import annotations

TOTAL = "all"
"""The name of all classes together in tables and figures."""
MOST_CHARACTERS = 100
MOST_CLASSES = 1000
"""More than these are mostly the names of users; tables and figures have a row for each class."""


def problem_of(name: str) -> str | None:
    """Return why a text cannot be the name of a class; None if it can."""
    if len(name) > MOST_CHARACTERS:
        return f"is a name of {len(name):,} characters; expected at most {MOST_CHARACTERS}"
    if not name.strip():
        return "is not a name"
    if not name.isprintable():
        return "is not a name of printable characters"
    if name == TOTAL:
        return "is what tables call all classes together; expected another name"
    return None
