"""All that a scheduler may know of a request: what a client says when it arrives, and what can be seen of it since."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Request ids: rows of the trace in order of arrival."""
Ints = npt.NDArray[np.int64]
"""Whole numbers: tokens, nodes, bytes."""
Floats = npt.NDArray[np.float64]
"""Seconds, probabilities."""
Places = npt.NDArray[np.int32]
"""Indices of replicas."""
Bools = npt.NDArray[np.bool_]
"""True or False of each row or node."""
LONGEST_S = 2.0**33
"""Seconds up to which neighbouring float64 lie within a microsecond: 272 years. No clock may pass it."""


# No slots here: a class with slots cannot derive from two others that have some, as `protocols.View` does.


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts of each request that are told at its arrival, (N,) each; index = request id.

    Attributes
    ----------
    arrival_s : seconds since the first arrival.
    prompt_tokens : at least 1.
    max_tokens : the most tokens that may be emitted; a bound, not the length.
    slo_class : index into `Requests.class_names`.
    tpot_slo_s, ttft_slo_s : seconds, NaN where the class has no such objective.
    cached_tokens : of the prompt's beginning that both models' caches already hold at arrival; never all of it, since
        the logits of its last token are the first token's.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    max_tokens: Ints
    slo_class: Ints
    tpot_slo_s: Floats
    ttft_slo_s: Floats
    cached_tokens: Ints


@dataclass(frozen=True, eq=False)
class Observed:
    """Counts and times of each request since its arrival, as a server sees them, (N,) each; index = request id.

    Attributes
    ----------
    emitted_tokens : tokens of the output so far.
    target_cached, draft_cached : tokens in either model's cache.
    first_token_s, first_decode_s : seconds, NaN until then; the second is the start of the first decoding pass.
    """

    emitted_tokens: Ints
    target_cached: Ints
    draft_cached: Ints
    first_token_s: Floats
    first_decode_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Requests(Facts):
    """All requests of a run, sorted by arrival, and the names of their classes."""

    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Hashes of blocks of text: two prompts begin alike as far as their hashes are equal.

    Attributes
    ----------
    hashes : (M,) of all prompts, one behind the other. A hash stands for a block and all blocks before it.
    first, count : (N,) place of each prompt's first hash, and how many it has. The last may stand for part of a block.
    block_tokens : tokens of a block.
    of_outputs : whether the hashes of a prompt go on over its output.
    """

    hashes: Ints
    first: Ints
    count: Ints
    block_tokens: int
    of_outputs: bool = False

    def taken(self, rows: slice | Ints) -> Prefixes:
        """Return the hashes of the prompts at indices `rows`."""
        return replace(self, first=self.first[rows], count=self.count[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Begun(Requests):
    """Requests whose prompts were read elsewhere: their caches arrive with them, `cached_tokens` is all of the prompt.

    Attributes
    ----------
    draft_kv_tokens : (N,) tokens of the prompt that the drafter's cache holds; the target's holds all of it.
    """

    draft_kv_tokens: Ints
