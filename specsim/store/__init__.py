"""Stored runs and sweeps: written in one step, read again whatever happened in between."""
