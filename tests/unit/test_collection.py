"""Collecting tests is cheap: every worker of xdist collects all of them."""

import pytest

from tests.conftest import COMPOSED


def test_no_module_composes_settings_when_it_is_imported(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.stash[COMPOSED] == 0
