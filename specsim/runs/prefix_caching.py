"""Whether blocks of prompts are kept for later prompts that begin alike."""

from __future__ import annotations

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.replica.request import Prefixes
from specsim.workload.trace import Trace


def prefixes(node: CheckedMapping, trace: Trace) -> Prefixes | None:
    """Return the hashes of all prompts where their blocks are kept, else None; ``prefix_caching`` of a configuration.

    Raises
    ------
    SpecsimError
        One line when the trace tells no hashes or tells what is cached, or its blocks are no whole blocks of the cache.
    """
    if not node.flag("prefix_caching"):
        return None
    name, block_tokens = trace.source.name, node.whole("block_tokens")
    if trace.prefixes is None:
        shipped = trace.source.origin in ("twin", "toy")
        why = f"the shipped {trace.source.origin} of trace {name!r} has" if shipped else f"trace {name!r} has"
        raise SpecsimError(f"prefix_caching=true: {why} no hash_ids; expected Mooncake's, or false")
    if node.child("split").given("prefill"):
        raise SpecsimError("prefix_caching=true: not with split.prefill; expected one of them")
    if trace.cached_tokens is not None:
        raise SpecsimError(f"prefix_caching=true: trace {name!r} tells cached_tokens itself; expected false")
    if trace.prefixes.block_tokens % block_tokens:
        said = f"hash_ids of {trace.prefixes.block_tokens} tokens are no whole blocks of block_tokens={block_tokens}"
        raise SpecsimError(f"prefix_caching=true: {said}")
    return trace.prefixes
