"""The passes a profile is fitted on, and others, of sizes never fitted, on which its error is stated."""

from __future__ import annotations

from dataclasses import dataclass

from tools.public.compose import Alike, ComposedPass

MAX_CONTEXT_TOKENS = 2**18
MAX_BATCHED_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes whose products make a grid: requests, their context, tree nodes and chunk tokens."""

    requests: tuple[int, ...]
    contexts: tuple[int, ...]
    trees: tuple[int, ...]
    chunks: tuple[int, ...]
    behind: tuple[int, ...]


FITTED = Sizes(
    requests=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    contexts=(128, 512, 1024, 2048, 4096),
    trees=(2, 5, 8, 16),
    chunks=(32, 64, 128, 160, 256, 320, 512, 640, 1024, 1536, 2048, 4096),
    behind=(0, 1024, 4096, 8192),
)
HELD_OUT = Sizes(
    requests=(3, 6, 12, 24, 48, 96, 192),
    contexts=(256, 768, 1536, 3072),
    trees=(3, 6, 12),
    chunks=(48, 96, 192, 224, 384, 448, 768, 1280, 1792, 3072),
    behind=(512, 2048, 6144),
)
KINDS = ("decode", "verify", "prefill", "mixed")


def passes(sizes: Sizes, max_context_tokens: int) -> list[ComposedPass]:
    """Return the passes of a grid that fit `max_context_tokens` of cache and the token limit of a pass.

    A mixed pass is a prompt's chunk beside decoding requests of 1,024 cached tokens each.
    """
    decode = [ComposedPass("decode", (Alike(n, k, 1),)) for n in sizes.requests for k in sizes.contexts]
    verify = [
        ComposedPass("verify", (Alike(n, k, tree, tree=True),))
        for n in sizes.requests
        for k in sizes.contexts
        for tree in sizes.trees
        if n * tree <= 1024
    ]
    prefill = [ComposedPass("prefill", (Alike(1, k, c),)) for c in sizes.chunks for k in sizes.behind]
    mixed = [
        ComposedPass("mixed", (Alike(1, 0, c), Alike(n, 1024, 1)))
        for c in sizes.chunks
        for n in sizes.requests
        if 8 <= n <= 64
    ]
    limit = min(max_context_tokens, MAX_CONTEXT_TOKENS)
    return [
        work
        for work in decode + verify + prefill + mixed
        if work.context_tokens <= limit and work.batched_tokens <= MAX_BATCHED_TOKENS
    ]
