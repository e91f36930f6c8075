"""Prefill and decode on replicas of their own: ``split`` of a configuration, and the pools that routers choose in."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.config.schema import Split
from specsim.errors import SpecsimError
from specsim.replica.machine import Machine
from specsim.replica.split import Splitting

GIGA = 1e9


def splitting(split: Split, replicas: int, machines: Sequence[Machine]) -> Splitting | None:
    """Return how the replicas of a run are split, None where each reads prompts and decodes.

    Raises
    ------
    SpecsimError
        One line when no replica would decode, there is no link, or caches of one replica are of no use on another.
    """
    prefill, *others = pools(split, replicas)
    if not others:
        return None
    if split.link_gb_per_s is None:
        raise SpecsimError(f"split.prefill={prefill}: by which link? expected split.link_gb_per_s too (1e9 bytes/s)")
    _check_layout(machines)
    return Splitting(prefill, split.link_gb_per_s * GIGA, split.link_latency_s or 0.0)


def pools(split: Split, replicas: int) -> tuple[int, ...]:
    """Return the sizes of the pools that a run's routers choose in: one, or those that read prompts and that decode.

    Raises
    ------
    SpecsimError
        One line when no replica would decode.
    """
    prefill = split.prefill
    if prefill is None:
        return (replicas,)
    if prefill >= replicas:
        raise SpecsimError(f"split.prefill={prefill}: leaves nobody to decode; expected fewer than replicas={replicas}")
    return prefill, replicas - prefill


def _check_layout(machines: Sequence[Machine]) -> None:
    for role in ("target", "draft"):
        found = sorted({getattr(machine.memory, f"{role}_token_bytes") for machine in machines})
        if len(found) > 1:
            raise SpecsimError(
                f"split.prefill: the {role}'s cache takes {' or '.join(map(str, found))} bytes per token, by profile; "
                "expected the same everywhere, since it moves"
            )
