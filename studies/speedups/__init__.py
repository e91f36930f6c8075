"""Predicted speed-ups of speculation against measured ones of public engines (docs/speedups.md)."""
