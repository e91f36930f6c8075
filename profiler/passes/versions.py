"""Versions of the software behind a measurement."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def versions() -> dict[str, str]:
    """Return the versions of torch, transformers and specsim, which need not be installed."""
    found = {name: version(name) for name in ("torch", "transformers")}
    try:
        return {**found, "specsim": version("specsim")}
    except PackageNotFoundError:
        return {**found, "specsim": "a checkout"}
