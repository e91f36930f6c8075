"""The shipped profiles, composed from public operator measurements: ``python -m profiler.public``."""
