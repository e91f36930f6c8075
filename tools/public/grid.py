"""The passes a profile is fitted on, and others, of sizes never fitted, on which its error is stated."""

from __future__ import annotations

from profiler.compose.passes import Sizes

MAX_CONTEXT_TOKENS = 2**18
MAX_BATCHED_TOKENS = 4096

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
