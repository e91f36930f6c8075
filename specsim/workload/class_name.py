"""What an SLO class may be called: tables, figures and files write the name as it is."""

from __future__ import annotations

TOTAL = "all"
"""What tables and figures call all classes together."""
MOST_CHARACTERS = 100
MOST_CLASSES = 1000
"""More are no classes but, as a rule, the names of users: tables and figures have a row for each."""


def problem_of(name: str) -> str | None:
    """Return what keeps a text from being the name of a class, None where nothing does."""
    if len(name) > MOST_CHARACTERS:
        return f"is a name of {len(name):,} characters; expected at most {MOST_CHARACTERS}"
    if not name.strip():
        return "is not a name"
    if not name.isprintable():
        return "is not a name of printable characters"
    if name == TOTAL:
        return "is what tables call all classes together; expected another name"
    return None
