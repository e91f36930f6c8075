"""Chains whose length follows the accepted length, in steps, for each range of batch sizes apart.

Paper: none; SGLang's adaptive speculative steps (`--speculative-adaptive`, sgl-project/sglang PR 21599 and 24055). Its
configuration is read unchanged.
Idea: a slot for each range of batch sizes keeps a moving average of the draft tokens accepted a request. Now and then
the slot takes a smaller candidate step while the average is too low for the present one, else a larger one.
Deviations:
- The default is that of SGLang's main branch in November 2026. PR 24055 merged steps of 1, 3, 7 from batch size 1 on,
  1, 2, 5 from 64 and 1, 2, 6 from 128.
- The batch size is that of the running requests, prompts included; SGLang pads that of the decodes to the size of a
  captured graph.
- As in SGLang the drafter reads the tokens of each step, at 0 steps, too (`_draft_extend` in eagle_worker_v2.py),
  but before the target's pass instead of behind it.
- A step without memory for the chains decodes without drafts and teaches nothing. Of a step that drafts, the requests
  without a chain (one token before their end) do not count.
- The strategy `throughput_aware`, by measured costs (PR 28045), is left out; `ema` is the default.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.trees import Forest
from specsim.errors import nearest
from specsim.schedulers.parts.growth import grow_chains
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length, probability

NAME = "speculative_adaptive_config"
DEFAULT: dict[str, Any] = {
    "1": {"candidate_steps": [1, 3, 5, 7]},
    "8": {"candidate_steps": [0, 1, 3], "down_hysteresis": 0.0},
    "32": {"candidate_steps": [0, 1], "down_hysteresis": 0.0},
    "64": {"candidate_steps": [0], "down_hysteresis": 0.0},
}
"""SGLang's configuration where none is given."""


@dataclass
class Slot:
    """The steps of a range of batch sizes.

    Parameters
    ----------
    candidate_steps : the lengths of a chain that it chooses among; 0 does not speculate.
    ema_alpha : weight of a verification in the average. warmup_batches : verifications before the first decision.
    update_interval : verifications from one decision to the next.
    down_hysteresis, up_hysteresis : added to the average at which a smaller, or a larger, step is taken.
    ceiling_coeff : times the average, rounded up, is the most that a step may be unless it grows; 0: no such limit.

    `steps` are in force, `average` is that of the accepted draft tokens, `batches` are the verifications so far.
    """

    candidate_steps: list[int]
    ema_alpha: float = 0.2
    update_interval: int = 5
    warmup_batches: int = 10
    down_hysteresis: float = -0.25
    up_hysteresis: float = 0.0
    ceiling_coeff: float = 0.0
    batches: int = field(init=False, default=0)

    def begin(self, steps: int) -> None:
        """Start at `steps` where they are a candidate, else at the middle one; the average starts one below."""
        self.steps = steps if steps in self.candidate_steps else self.candidate_steps[len(self.candidate_steps) // 2]
        self.average = self.steps - 1.0

    def on_verified(self, accepted: float) -> None:
        """Count a verification with so many accepted draft tokens a request, and decide where a decision is due."""
        if self.steps:
            self.average += self.ema_alpha * (accepted - self.average)
        self.batches += 1
        counted = self.batches - self.warmup_batches
        if counted > 0 and counted % self.update_interval == 0:
            self.steps = self._decided()

    def _decided(self) -> int:
        steps, place, last = self.candidate_steps, self.candidate_steps.index(self.steps), len(self.candidate_steps) - 1
        if not self.steps:
            # Nothing is learnt at 0 steps: the next candidate is tried.
            place = min(1, last)
            self.average = steps[place] - 1.0 if self.average < 0 else self.average
            return steps[place]
        while place and self.average <= max(steps[place - 1], 1) - 0.5 + self.down_hysteresis:
            place -= 1
        if steps[place] == self.steps:
            while place < last and self.average > steps[place] - 0.5 + self.up_hysteresis:
                place += 1
        most = max(1, ceil(self.average * self.ceiling_coeff)) if self.ceiling_coeff > 0 else steps[-1]
        while place and steps[place] > most and steps[place] <= self.steps:
            place -= 1
        return steps[place]


@dataclass
class AdaptiveSteps(Speculation):
    """A speculation part: chains of one length for all, by the average of what was accepted at this batch size.

    Parameters
    ----------
    speculative_num_steps : the length of a chain at the beginning, where it is a candidate.
    speculative_adaptive_config : ``{"batch size": {"candidate_steps": [0, 1, 3], ...}}``, from that batch size on up to
        the next, with any key of `Slot`; a key of `Slot` beside the batch sizes holds for all of them. Null: `DEFAULT`.
    """

    speculative_num_steps: int
    speculative_adaptive_config: dict[str, Any] | None
    _begun: bool = field(init=False, repr=False, default=False)
    by_table = True

    def __post_init__(self) -> None:
        draft_length(speculative_num_steps=self.speculative_num_steps)
        given = self.speculative_adaptive_config
        slots = checked_slots(DEFAULT if given is None else given)
        self._firsts, self._slots = list(slots), list(slots.values())
        for each in self._slots:
            each.begin(self.speculative_num_steps)
        self._slot = self._slots[0]

    def begin(self, requests: int) -> None:
        """Begin a run; the state is none of the requests'."""
        self._begun = True

    @property
    def drafts(self) -> bool:
        """Whether it drafts: whether any batch size has a candidate above 0."""
        return any(each.candidate_steps[-1] for each in self._slots)

    def slot(self, batch_size: int) -> Slot:
        """Return the slot of a batch size: the last that begins at or below it, else the first."""
        return self._slots[max(bisect_right(self._firsts, batch_size) - 1, 0)]

    def draft_tokens(self, requests: int) -> int:
        """Return the steps in force at this batch size; before a run the greatest candidate."""
        return self.slot(requests).steps if self._begun else max(each.candidate_steps[-1] for each in self._slots)

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per step in force, at 0 one that reads, and return the chains; none if not all fit."""
        self._slot = self.slot(len(view.running))
        return grow_chains(view, sequences, self._slot.steps, reads_along=True)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Tell the slot how many draft tokens a request were accepted."""
        drafted = forest.tree_tokens() > 0
        if drafted.any():
            self._slot.on_verified(float(answer.matched[drafted].mean()))
        elif sequences.decoding and not self._slot.steps:
            self._slot.on_verified(0.0)


def checked_slots(given: dict[str, Any]) -> dict[int, Slot]:
    """Return the slots by the batch size from which they hold, in order.

    Raises
    ------
    ValueError
        When there is no batch size, a key is unknown or a value is none that the key may have.
    """
    if not isinstance(given, dict) or not any(str(key).isdecimal() for key in given):
        raise ValueError(f'{NAME}: {given!r} is no {{"batch size": {{"candidate_steps": [0, 1, 3]}}}}')
    sizes = [key for key in given if str(key).isdecimal()]
    if len(set(map(int, sizes))) < len(sizes):
        raise ValueError(f"{NAME}: a batch size is there twice: {', '.join(map(str, sizes))}")
    if given.get("strategy", "ema") != "ema":
        raise ValueError(f"{NAME}: strategy: {given['strategy']!r} is not simulated; expected ema")
    shared = {key: value for key, value in given.items() if key not in sizes and key != "strategy"}
    return {int(key): _slot(key, shared, given[key]) for key in sorted(sizes, key=int)}


def _slot(key: str, shared: dict[str, Any], own: Any) -> Slot:
    keys = [name for name, each in Slot.__dataclass_fields__.items() if each.init]
    entry = {**shared, **own} if isinstance(own, dict) else {}
    for name, value in entry.items():
        if name not in keys:
            raise ValueError(f"{NAME}: unknown key {name!r}{nearest(name, keys)}")
        if name in ("warmup_batches", "update_interval") and type(value) is not int:
            raise ValueError(f"{NAME}: {name}: {value!r} is no whole number")
        if name != "candidate_steps" and (type(value) not in (int, float) or not isfinite(value)):
            raise ValueError(f"{NAME}: {name}: {value!r} is no finite number")
    steps = entry.get("candidate_steps")
    if not isinstance(steps, list) or not steps or not all(type(each) is int and each >= 0 for each in steps):
        raise ValueError(f"{NAME}: {key}: candidate_steps: {steps!r} is no list of whole numbers of at least 0")
    draft_length(candidate_steps=max(steps))
    slot = Slot(**entry | {"candidate_steps": sorted(set(steps))})
    at_least(1, update_interval=slot.update_interval)
    at_least(0, warmup_batches=slot.warmup_batches)
    probability(ema_alpha=slot.ema_alpha)
    return slot
