"""Simulated times against whole engines of others: ``python -m studies.served_points`` writes docs/served-points.md."""
