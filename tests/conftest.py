"""What holds of every test: examples are drawn alike in each run, and none has a deadline on a shared machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("specsim", deadline=None, derandomize=True)
settings.load_profile("specsim")
