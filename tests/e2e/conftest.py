"""What the end-to-end tests share."""

import pytest

from specsim import simulation


@pytest.fixture
def started(monkeypatch):
    """Count the simulations that start."""
    begun, really = [], simulation.run

    def run(*given):
        begun.append(given)
        return really(*given)

    monkeypatch.setattr(simulation, "run", run)
    return begun
