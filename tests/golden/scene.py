"""The one small run behind every golden file: bursts, tight memory, all classes, one-token outputs, a rejection."""

from dataclasses import replace
from typing import Any

import numpy as np

from specsim.acceptance.curves import Acceptance, Curve
from specsim.metrics.recorder import Record
from specsim.metrics.requests import RunTotals
from specsim.schedulers.loading import AUTO, scheduler_factory
from specsim.server.kv_cache import Memory
from specsim.simulation import Simulation, run
from tests.laws.subjects import raw_of
from tests.made import hardware, requests, simulation, table_of_run

COUNT = 16
SCARCE = {"verify_tokens": 8, "max_num_seqs": 8}
"""A verification budget that binds: requests of this size never spend the shipped one."""
CHUNK = {"prefill_tokens": 1024}
"""The prompt chunk of runs whose own follows the profile."""
SOON = {"window": 2, "spread": 0.9}
"""Acceptance rates that are steady before these outputs end."""


def scene(token_s: float = 2e-4, room: int = 1) -> Simulation:
    """Return the simulation, without a scheduler. No luck: everything is arithmetic, but for the text."""
    at = np.arange(COUNT)
    arrival_s = np.where(at < 10, at // 5 * 0.02, 4.0 + (at - 10) * 0.045)
    prompts, outputs = 3 + at * 7 % 29, 1 + at * 11 % 23
    prompts[7] = 900
    told = requests(arrival_s.tolist(), prompts.tolist(), (outputs + at % 3).tolist(), (at % 3).tolist())
    acceptance = Acceptance({"default": Curve(0.75, 6.0, 0.5, 0.5)}, width=4, levels=4)
    text = acceptance.acceptance_trace(["default"] * 3, told.slo_class, at, seed=11)
    pool = Memory(capacity_bytes=4 * 4 * 24 * room, block_tokens=4, target_token_bytes=3, draft_token_bytes=1)
    return simulation(
        told, outputs.tolist(), pool=pool, truth=hardware(2e-6, token_s, 0.012), text=text, selection_token_s=1e-5
    )


def played(name: str, **changes: Any) -> Record:
    """Play a scheduler, with other values of keys that stand at the top of its YAML.

    Where queues or a budget decide, tokens are dear: limits in seconds are reached, four decodes are too many for the
    strictest objective, and with room for eight requests the budget is short.
    """
    raw = raw_of(name)
    budget, queues = "verify_tokens" in raw, raw.get("batching", {})
    raw |= (SCARCE if budget else {}) | (CHUNK if raw.get("prefill_tokens") == AUTO else {}) | changes
    if "window" in queues.get("acceptance", {}):
        queues["acceptance"] |= SOON
    simulated = scene(5e-3 if budget or "batch_slots" in queues else 2e-4, 2 if budget else 1)
    return run(replace(simulated, scheduler=scheduler_factory(raw, name)))


def columns_of(record: Record) -> dict[str, dict[str, Any]]:
    """Return all that a record holds, by part and column, as plain lists and numbers."""
    requests = table_of_run(record)
    totals = {name: getattr(record.totals, name) for name in RunTotals.__dataclass_fields__}
    parts = {"requests": dict(requests.items()), "totals": totals, "passes": record.passes}
    return {part: {name: _plain(column) for name, column in columns.items()} for part, columns in parts.items()}


def _plain(value: Any) -> Any:
    return [None if each != each else each for each in value.tolist()] if hasattr(value, "tolist") else value
