"""Whether blocks of prompts are kept for later prompts that begin alike."""

from __future__ import annotations

from specsim.config.schema import Shed, Split
from specsim.errors import SpecsimError
from specsim.replica.request import Prefixes
from specsim.workload.trace import Trace


def prefixes(block_tokens: int, split: Split, shed: Shed, trace: Trace) -> Prefixes:
    """Return the hashes of all prompts, whose blocks are kept.

    Raises
    ------
    SpecsimError
        One line when the trace tells no hashes or tells what is cached, or its blocks are no whole blocks of the cache.
    """
    name = trace.source.name
    if trace.prefixes is None:
        shipped = trace.source.origin in ("twin", "toy")
        who = f"the shipped {trace.source.origin} of trace {name!r}" if shipped else f"trace {name!r}"
        cure = "expected a list a request, by blocks of one size, not resampled"
        raise SpecsimError(f"prefix_caching=true: {who} has no hash_ids that can be used; {cure}")
    for other, given in (("split.prefill", split.prefill is not None), ("shed.ttft", shed.ttft)):
        if given:
            raise SpecsimError(f"prefix_caching=true: not with {other}; expected one of them")
    if trace.cached_tokens is not None:
        raise SpecsimError(f"prefix_caching=true: trace {name!r} tells cached_tokens itself; expected false")
    if trace.prefixes.block_tokens % block_tokens:
        said = f"hash_ids of {trace.prefixes.block_tokens} tokens are no whole blocks of block_tokens={block_tokens}"
        raise SpecsimError(f"prefix_caching=true: {said}")
    return trace.prefixes
