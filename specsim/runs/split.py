"""Prefill and decode on replicas of their own: ``split`` of a configuration, and the pools that routers choose in."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.replica.machine import Machine
from specsim.replica.split import Splitting

GIGA = 1e9
SLOWEST_GB_PER_S, FASTEST_GB_PER_S, LONGEST_S = 1e-9, 1e12, 1e6


def splitting(node: CheckedMapping, machines: Sequence[Machine]) -> Splitting | None:
    """Return how the replicas of a run are split, None where each reads prompts and decodes.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, nobody would decode, or caches of one replica are of no use on another.
    """
    prefill, *others = pools(node)
    if not others:
        return None
    split = node.child("split")
    if not split.given("link_gb_per_s"):
        raise SpecsimError(f"split.prefill={prefill}: by which link? expected split.link_gb_per_s too (1e9 bytes/s)")
    rate = split.number("link_gb_per_s", least=SLOWEST_GB_PER_S, most=FASTEST_GB_PER_S)
    latency_s = split.number("link_latency_s", most=LONGEST_S) if split.given("link_latency_s") else 0.0
    _check_layout(machines)
    return Splitting(prefill, rate * GIGA, latency_s)


def pools(node: CheckedMapping) -> tuple[int, ...]:
    """Return the sizes of the pools that a run's routers choose in: one, or those that read prompts and that decode.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, or nobody would decode.
    """
    replicas, split = node.whole("replicas"), node.child("split")
    split.only(("prefill", "link_gb_per_s", "link_latency_s"))
    if not split.given("prefill"):
        return (replicas,)
    prefill = split.whole("prefill")
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
