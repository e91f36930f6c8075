"""A CUDA graph's stand-in on the CPU: a replay runs the pass again, over the inputs that were there at capture."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Rerun:
    """Runs a pass, and writes its result to where the captured one wrote it."""

    def __init__(self, run: Callable[[], torch.Tensor], result: torch.Tensor) -> None:
        self._run, self._result = run, result

    def replay(self) -> None:
        with torch.inference_mode():
            self._result.copy_(self._run())


def rerun(run: Callable[[], torch.Tensor], warm_up: Callable[[], object]) -> tuple[Rerun, torch.Tensor]:
    """Capture as `profiler.passes.graphs.capture` does."""
    warm_up()
    result = run()
    return Rerun(run, result), result
