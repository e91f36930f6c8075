"""Tests of specsim, its profiler, its studies and its tools."""

from pathlib import Path

MYPY_CACHE = Path(__file__).parents[1] / ".mypy_cache" / "examples"
"""Shared by the tests that hold examples to `mypy --strict`: the types of libraries are read once."""
