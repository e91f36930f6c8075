"""What a drafter that is recorded must answer."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor

from profiler.acceptance.generate import Written
from profiler.acceptance.rows import TapeRows


class RecordedDrafter(Protocol):
    """A drafter whose proposals are recorded, asked along a text that the target wrote."""

    def rows(self, prompt: Tensor, written: Written, key: np.uint64) -> TapeRows:
        """Return the rows of every output position, and of some positions behind a wrong token.

        Parameters
        ----------
        prompt : (P,) token ids, at least one. written : what the target wrote behind them, at least one token.
        key : the drafter's luck on this text.
        """
        ...
