"""How many examples a law draws: few among the fast tests, many where the slow ones run as well."""

from __future__ import annotations

_thorough = False


def be_thorough(thorough: bool) -> None:
    """Say, before any test is imported, whether the slow tests run."""
    global _thorough
    _thorough = thorough


def examples(few: int, many: int) -> int:
    return many if _thorough else few
