"""How many prompt tokens join a pass: what it reads beside its weights, and what the TTFT objectives ask for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from specsim.core.protocols import PassCosts, View
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.pass_shape import PassShape, PassShapes
from specsim.schedulers.parts.protocols import at_least
from specsim.schedulers.parts.tree_shape import MOST_DEPTH

TILE_TOKENS = 64
"""Scheduled beyond what prompts fill are multiples of it."""
NEAR = 1.02
"""Of sizes of a pass whose prompt tokens cost at most this times the least, the greatest is taken."""
FEW_TOKENS = 8
"""A pass of up to so many, the shortest of them, is what a prompt's tokens are added to."""


@dataclass(frozen=True, slots=True)
class DueChunk:
    """Prompt tokens of a pass, by a rule of this project.

    Prompts fill what decodes and trees leave of `filled_tokens`. They get more where a prompt would else miss its
    TTFT objective: the least chunk with which all end in time if passes of this size read them in their order. If none
    does, or a prompt is late or has no such objective, they get all that the limit of a pass leaves.

    Parameters
    ----------
    filled_tokens : batched tokens up to which prompts fill a pass, as `filled_tokens` finds them.
    max_num_batched_tokens : most tokens of a pass, drafts included.
    """

    filled_tokens: int
    max_num_batched_tokens: int

    def __post_init__(self) -> None:
        at_least(1, max_num_batched_tokens=self.max_num_batched_tokens)

    def __call__(self, view: View, decodes: Bools, most_requests: int, draft_tokens: int | None = None) -> int:
        """Return the prompt tokens of the next pass, at least 1.

        Parameters
        ----------
        decodes : (n,) which of the running requests decode.
        most_requests : batch slots; prompts that wait for one do not count.
        draft_tokens : how many each decoding request verifies; None: nothing is drafted.
        """
        running = view.running
        if decodes.all() and not view.waiting:
            return 1
        new = list(islice(view.waiting, max(most_requests - len(running), 0)))
        prompts = np.concatenate((running[~decodes], np.array(new, dtype=np.int64)))
        beside = int(np.count_nonzero(decodes)) * (1 + (draft_tokens or 0))
        most = max(self.max_num_batched_tokens - beside, 1)
        least = min(max(self.filled_tokens - beside, 1), most)
        ahead = np.add.accumulate(view.pending(prompts))
        if not len(prompts) or int(ahead[-1]) <= least:
            return least
        left_s = view.arrival_s[prompts] + view.ttft_slo_s[prompts] - view.now_s
        if not (left_s > 0).all():
            return most
        chunks = np.append(least, np.arange(least // TILE_TOKENS + 1, most // TILE_TOKENS + 1) * TILE_TOKENS)
        begun = int(np.add.reduce(view.target_cached[running[~decodes]]))
        steps = left_s[:, None] // _step_s(view, running[decodes], draft_tokens, begun, chunks)
        in_time = (steps * chunks >= ahead[:, None]).all(axis=0)
        return int(chunks[np.argmax(in_time)]) if in_time.any() else most


def filled_tokens(target: PassCosts, most: int) -> int:
    """Return the batched tokens up to which prompts fill a pass of `most`, from the model of the target's passes.

    Up to the bend of its roofline a pass waits for the weights. Without a bend it is the size at which a token of a
    prompt costs least: all of a pass where tokens cost most at first, as the first ones have a mixture's experts read,
    and where all cost alike.
    """
    if target.bend_tokens is not None:
        return int(target.bend_tokens)
    sizes = np.append(np.arange(TILE_TOKENS, most, TILE_TOKENS), max(most, FEW_TOKENS + 1))
    tried = np.arange(1, FEW_TOKENS + 1), sizes
    few_s, seconds = (target.seconds_array(PassShapes(0, n, 0, 1, 1, 0, n)) for n in tried)
    token_s = np.maximum(seconds - few_s.min(), 0.0) / (sizes - 1 - np.argmin(few_s))
    return int(sizes[np.flatnonzero(token_s <= NEAR * token_s.min())[-1]])


def _step_s(view: View, decoding: Ids, draft_tokens: int | None, begun: int, chunks: Ints) -> Floats:
    """Return the estimated seconds of steps with each of `chunks` (m,) behind `begun` tokens of their prompts, (m,).

    A draft pass but the first is taken to run as many tokens as the verification of `decoding` (n,): the candidates
    are more than what is verified.
    """
    plain = PassShape.of_decoding(view.target_cached[decoding])
    if draft_tokens is None:
        return view.cost_model.target.seconds_array(_with(chunks, begun, plain))
    draft = view.cost_model.draft
    verified = plain.with_nodes(len(decoding) * draft_tokens, draft_tokens * plain.context_tokens)
    seconds = view.cost_model.target.seconds_array(_with(chunks, begun, verified))
    if draft.cached:
        seconds = seconds + draft.seconds_array(_with(chunks, begun, plain))
    passes = min(draft_tokens, 1 if draft.one_pass else MOST_DEPTH) - draft.cached
    return seconds + max(passes, 0) * draft.seconds(verified) if len(decoding) else seconds


def _with(chunks: Ints, begun: int, shape: PassShape) -> PassShapes:
    return PassShapes(
        shape.context_tokens + begun,
        shape.batched_tokens + chunks,
        shape.attention_pairs + chunks * (begun + chunks / 2),
        shape.logit_tokens + 1,
        shape.requests + 1,
        shape.repeated_tokens,
        chunks,
    )
