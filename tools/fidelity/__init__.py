"""Simulated times held against whole engines of others: ``python -m tools.fidelity`` writes docs/served-points.md."""
