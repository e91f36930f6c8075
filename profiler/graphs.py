"""CUDA graphs: a pass captured once, to be replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def capture(run: Callable[[], Any], warm_up: Callable[[], object], cuda: Any = torch.cuda) -> tuple[Any, Any]:
    """Return a graph of `run` and what a replay writes its result to; `warm_up` goes before, on a stream of its own.

    `cuda` is ``torch.cuda``, injected so that the order of calls is tested without a GPU.
    """
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        warm_up()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        result = run()
    return graph, result
