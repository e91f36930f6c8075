"""CUDA graphs: passes captured once and replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch


def capture(
    run: Callable[[], Any], warm_up: Callable[[], object], cuda: Any = torch.cuda, pool: Any = None
) -> tuple[Any, Any]:
    """Return a graph of `run`, and the result that a replay writes to; `warm_up` runs first, on the capture stream.

    Graphs of one `pool` share their memory. `cuda` is ``torch.cuda``, injected so that the order of calls is tested
    without a GPU.
    """
    side = _side_stream(cuda)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        warm_up()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=side, **({} if pool is None else {"pool": pool})):
        result = run()
    return graph, result


@cache
def _side_stream(cuda: Any) -> Any:
    """Return the one stream of all captures, since libraries keep a workspace for each stream that they have used."""
    return cuda.Stream()
