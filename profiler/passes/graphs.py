"""CUDA graphs: a pass captured once, to be replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch


def capture(run: Callable[[], Any], warm_up: Callable[[], object], cuda: Any = torch.cuda) -> tuple[Any, Any]:
    """Return a graph of `run` and what a replay writes its result to; `warm_up` goes before, on the stream of capture.

    `cuda` is ``torch.cuda``, injected so that the order of calls is tested without a GPU.
    """
    side = _side_stream(cuda)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        warm_up()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=side):
        result = run()
    return graph, result


@cache
def _side_stream(cuda: Any) -> Any:
    """Return the one stream of all captures: libraries keep a workspace for every stream they have ever run on."""
    return cuda.Stream()
