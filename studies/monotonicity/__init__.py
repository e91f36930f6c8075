"""Monotonicity: when more memory, a faster GPU or a better draft hurts (docs/anomalies.md)."""
