"""Profiles composed from measured kernels."""
