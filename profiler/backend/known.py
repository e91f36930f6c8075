"""The tokens that exist of each request: its prompt, and what was emitted since."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler.attention.packing import Ints
from specsim.core.request import Requests
from specsim.errors import SpecsimError
from specsim.rng import STRIDE, mix, stream_keys


class Known:
    """Tokens by request.

    Parameters
    ----------
    prompts : token ids of each request. output_tokens : (N,) how many follow.
    """

    def __init__(self, prompts: Sequence[Ints], output_tokens: Ints) -> None:
        self._tokens = [
            np.concatenate([prompt, np.zeros(more, dtype=np.int64)])
            for prompt, more in zip(prompts, output_tokens.tolist(), strict=True)
        ]
        self._prompt_tokens = [len(prompt) for prompt in prompts]
        self._length = list(self._prompt_tokens)

    def length(self, request: int) -> int:
        """Return how many tokens of a request exist."""
        return self._length[request]

    def between(self, request: int, start: int, end: int) -> Ints:
        """Return the tokens of a request from `start` to before `end`."""
        assert end <= self._length[request], "tokens are asked for that do not exist yet"
        return self._tokens[request][start:end]

    def emit(self, request: int, tokens: Ints) -> None:
        """Append tokens."""
        start = self._length[request]
        self._tokens[request][start : start + len(tokens)] = tokens
        self._length[request] += len(tokens)

    def output(self, request: int) -> Ints:
        """Return what a request has emitted."""
        return self.between(request, self._prompt_tokens[request], self._length[request])


def random_tokens(seed: int, request: int, count: int, vocabulary: int) -> Ints:
    """Return token ids hashed from seed, request and position, (count,)."""
    key = stream_keys(seed, "tokens", np.array([request]))
    words = mix(key + STRIDE * np.arange(count).astype(np.uint64))
    return (words % np.uint64(vocabulary)).astype(np.int64)


def checked_prompts(prompts: Sequence[Ints], requests: Requests, vocabulary: int) -> Sequence[Ints]:
    """Return the prompts if they are those of the requests.

    Raises
    ------
    SpecsimError
        One line that names the first request whose prompt has another length, or a token that no model has.
    """
    if len(prompts) != len(requests):
        raise SpecsimError(f"prompts: {len(prompts)} for {len(requests)} requests")
    for request, prompt in enumerate(prompts):
        due = int(requests.prompt_tokens[request])
        if len(prompt) != due:
            raise SpecsimError(f"prompts: request {request} has {len(prompt)} tokens; expected its {due}")
        if prompt.min() < 0 or prompt.max() >= vocabulary:
            raise SpecsimError(f"prompts: request {request} has a token outside 0 to {vocabulary - 1}")
    return prompts
