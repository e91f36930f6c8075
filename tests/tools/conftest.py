"""Files whose tests all need torch are not imported where such tests are left out, as in tests/profiler."""

from tests.profiler.conftest import one_thread as one_thread
from tests.profiler.conftest import pytest_ignore_collect as pytest_ignore_collect
