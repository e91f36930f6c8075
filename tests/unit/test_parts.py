"""What a part of a composed scheduler must say and keep to."""

from dataclasses import dataclass

import numpy as np
import pytest

from specsim import SpecsimError, simulate
from specsim.plugin import Speculation, grow
from specsim.schedulers.composed import Composed
from specsim.schedulers.sarathi import TokenBudget


@dataclass(frozen=True)
class Sixes(Speculation):
    """Six drafts a request, of which `says` are told to the token budget."""

    says: int
    drafts = True

    def draft_tokens(self, requests):
        return self.says

    def grow(self, view, sequences):
        max_depth = np.where(np.arange(len(sequences.requests)) < sequences.decoding, 6, 0)
        return grow(sequences.requests, sequences.catch_up, max_depth, (1,) * 6)


class NoForest(Sixes):
    def grow(self, view, sequences):
        yield from super().grow(view, sequences)
        return None


BUDGET = TokenBudget(max_num_seqs=32, max_num_batched_tokens=64, watermark=0.01)
RUN = {"trace": "poisson", "rps": 24, "requests": 60, "acceptance": 0.7}


def test_a_part_that_breaks_its_word_or_lacks_one_is_refused_by_name():
    assert simulate(Composed(BUDGET, Sixes(6)), **RUN).metrics["completed"] == 60
    with pytest.raises(SpecsimError, match=r"above max_num_batched_tokens=64: Sixes drafts more than its draft_tokens"):
        simulate(Composed(BUDGET, Sixes(1)), **RUN)
    late = type("Late", (Sixes,), {"draft_tokens": lambda self, requests: 6 if requests < 2 else self.says})
    for part, told in ((Sixes(-1), "^Sixes.draft_tokens returned -1 "), (late(2.5), "Late.draft_tokens returned 2.5 ")):
        with pytest.raises((SpecsimError, ValueError), match=f"{told}.*; expected a whole number of at least 0"):
            simulate(Composed(BUDGET, part), **RUN)
    for has, lacks in (({"grow": Sixes.grow}, "drafts"), ({"drafts": True}, "grow")):
        with pytest.raises(ValueError, match=f"Part has no '{lacks}'"):
            Composed(BUDGET, type("Part", (Speculation,), has)())
    with pytest.raises(ValueError, match="'engine' is a word of YAML files"):
        Composed("engine", Sixes(6))
    requests = np.arange(3)
    with pytest.raises(TypeError, match="max_depth holds float64; expected integers"):
        next(grow(requests, requests, np.ceil(requests * 0.5), (1, 1)))
    with pytest.raises(SpecsimError, match=r"NoForest.grow returned None; expected the forest to verify"):
        simulate(Composed(BUDGET, NoForest(6)), **RUN)
