"""Models of a few thousand weights are slower on several threads."""

from tests.profiler.backend.conftest import _one_thread

__all__ = ["_one_thread"]
