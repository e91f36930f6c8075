"""The shipped profiles, composed from public operator measurements: ``python -m tools.public``."""
