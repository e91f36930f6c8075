"""Composed passes held against whole engines that nobody fitted: ``python -m tools.fidelity``."""
