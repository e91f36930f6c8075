"""Forms of pass time: seconds of a forward pass as a function of its `PassShape`."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specsim.pass_shape import PassShape, PassShapes

Seconds: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Linear:
    """T = alpha * context + gamma * batched + delta (SmartSpec Eq. 7, SpecServe Eq. 2).

    It has no bend and no quadratic part: `attention_pairs` and `logit_tokens` are ignored.
    """

    alpha_s: float
    gamma_s: float
    delta_s: float

    @property
    def bend_tokens(self) -> float | None:
        """None: a line has no bend."""
        return None

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one pass."""
        return self.alpha_s * shape.context_tokens + self.gamma_s * shape.batched_tokens + self.delta_s

    def seconds_array(self, shapes: PassShapes) -> Seconds:
        """Return the seconds of many passes."""
        context, batched, _ = np.broadcast_arrays(*shapes[:3])
        return np.asarray(self.alpha_s * context + self.gamma_s * batched + self.delta_s, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Roofline:
    """The slower of memory and compute, once for the weights and once for attention.

    T = max(delta + gamma * batched, compute_delta + compute * tiles) + max(alpha * context, beta * pairs)

    ``tiles`` is ``batched`` rounded up to ``tile_tokens`` (1: no staircase), as a GEMM kernel pads its rows.
    ``alpha * context`` is reading the cache once, ``beta * pairs`` computing the scores. A decode pass pays the first,
    a prefill chunk the second, a tree the larger of both. Five coefficients are added or subtracted if they are given:

    - ``single_s``: a pass of one token is shorter by this, if a library has kernels for matrix times vector;
    - ``pair_s``: an attention pair costs this in addition, if reading the cache does not hide behind the products;
    - ``logit_s``: the logits of a token cost this. If 0, the logits of every batched token are in ``gamma``;
    - ``few_s``: seconds added to passes of 1, 2, ... batched tokens, negative if they are shorter than the line says;
    - ``few_logits_s``: the same of passes with the logits of 1, 2, ... tokens.

    No other coefficient is negative. So the time never falls when an argument grows, unless a pass outgrows the offsets
    of ``few_s`` and ``few_logits_s``, which may rise and fall as a library's kernels do.
    """

    delta_s: float
    gamma_s: float
    compute_delta_s: float
    compute_s: float
    alpha_s: float
    beta_s: float
    tile_tokens: int = 1
    single_s: float = 0.0
    pair_s: float = 0.0
    logit_s: float = 0.0
    few_s: tuple[float, ...] = ()
    few_logits_s: tuple[float, ...] = ()

    @property
    def knee_tokens(self) -> float | None:
        """The ridge of the roofline: batched tokens whose products alone take as long as the floor.

        The lines cross at `bend_tokens`: earlier if ``compute_delta_s`` is large, later if ``gamma_s`` is.
        """
        return self.delta_s / self.compute_s if self.compute_s else None

    @property
    def bend_tokens(self) -> float | None:
        """Batched tokens from which on compute is slower than memory, without tiles; None if it never is."""
        steeper, lower = self.compute_s - self.gamma_s, self.delta_s - self.compute_delta_s
        return lower / steeper if steeper > 0 and lower > 0 else None

    @property
    def shortest_s(self) -> float:
        """The least seconds of a pass over an empty cache; not above 0 if an offset takes all of it."""
        sizes = range(1, max(len(self.few_s), len(self.few_logits_s)) + 2)
        return min(self.seconds(PassShape(0, n, 0, 0, logits, 1)) for n in sizes for logits in range(1, n + 1))

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one pass."""
        context_tokens, batched_tokens, attention_pairs, _, logit_tokens, *_ = shape
        tile = self.tile_tokens
        memory = self.delta_s + self.gamma_s * batched_tokens
        compute = self.compute_delta_s + self.compute_s * (-(-batched_tokens // tile) * tile)
        read = self.alpha_s * context_tokens
        products = self.beta_s * attention_pairs
        seconds = (memory if memory > compute else compute) + (read if read > products else products)
        seconds += self.pair_s * attention_pairs
        seconds += self.logit_s * logit_tokens
        if self.few_s:
            seconds += _offset(self.few_s, batched_tokens)
        if self.few_logits_s:
            seconds += _offset(self.few_logits_s, logit_tokens)
        return seconds - self.single_s if batched_tokens == 1 else seconds

    def seconds_array(self, shapes: PassShapes) -> Seconds:
        """Return the seconds of many passes."""
        named = shapes.context_tokens, shapes.batched_tokens, shapes.attention_pairs, shapes.logit_tokens
        context, batched, pairs, logits = (_counts(each) for each in named)
        tile = self.tile_tokens
        tiles = batched if tile == 1 and batched.dtype.kind == "i" else -(-batched // tile) * tile
        weights = np.maximum(self.delta_s + self.gamma_s * batched, self.compute_delta_s + self.compute_s * tiles)
        seconds = weights + np.maximum(self.alpha_s * context, self.beta_s * pairs)
        # A coefficient that is not given is not added: most are not, and each costs as long as the lines above.
        for each_s, tokens in ((self.pair_s, pairs), (self.logit_s, logits)):
            if each_s:
                seconds = seconds + each_s * tokens
        for offsets, tokens in ((self.few_s, batched), (self.few_logits_s, logits)):
            for size, offset in enumerate(offsets, 1):
                seconds = seconds + np.where(tokens == size, offset, 0.0)
        if self.single_s:
            seconds = seconds - np.where(batched == 1, self.single_s, 0.0)
        seconds = np.asarray(seconds, dtype=np.float64)
        shape = np.broadcast_shapes(seconds.shape, logits.shape)
        return seconds if seconds.shape == shape else np.broadcast_to(seconds, shape).copy()


def _counts(values: Any) -> Any:
    """Return counts as int64 or float64, whatever numbers they are given as."""
    array = np.asarray(values)
    return array if array.dtype.kind in "if" and array.itemsize == 8 else array.astype(np.float64)


def _offset(offsets: tuple[float, ...], tokens: float) -> float:
    """Return the entry of `offsets` for 1, 2, ... tokens; 0 for more, and between whole numbers."""
    return offsets[int(tokens) - 1] if 1 <= tokens <= len(offsets) and tokens == int(tokens) else 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """Seconds interpolated in a table of batched tokens, above a floor, and attention and logits beside them.

    T = max(floor, table(batched)) + max(alpha * context, beta * pairs) + logit * logits + request * requests

    The table is linear between rows and beyond the last. ``batched_tokens`` rises strictly and has as many entries as
    ``seconds_at``, at least two. AdaServe's artifact gives no more than the table and its floor.
    """

    batched_tokens: tuple[float, ...]
    seconds_at: tuple[float, ...]
    floor_s: float
    alpha_s: float = 0.0
    beta_s: float = 0.0
    logit_s: float = 0.0
    request_s: float = 0.0

    @property
    def bend_tokens(self) -> float | None:
        """Batched tokens at which the table leaves its floor; None if it has none, or never does."""
        for (low, before), (high, after) in pairwise(zip(self.batched_tokens, self.seconds_at, strict=True)):
            if after > self.floor_s >= before:
                return low + (self.floor_s - before) * (high - low) / (after - before)
        return None

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one pass."""
        context_tokens, batched_tokens, attention_pairs, _, logit_tokens, requests, *_ = shape
        tokens, times = self.batched_tokens, self.seconds_at
        row = bisect_left(tokens, batched_tokens, 1, len(tokens) - 1)
        low, before = tokens[row - 1], times[row - 1]
        slope = (times[row] - before) / (tokens[row] - low)
        value = before + slope * (batched_tokens - low)
        read, products = self.alpha_s * context_tokens, self.beta_s * attention_pairs
        seconds = (value if value > self.floor_s else self.floor_s) + (read if read > products else products)
        return seconds + self.logit_s * logit_tokens + self.request_s * requests

    def seconds_array(self, shapes: PassShapes) -> Seconds:
        """Return the seconds of many passes."""
        context, batched, pairs, logits, requests = np.broadcast_arrays(*shapes[:5])
        tokens, times = np.asarray(self.batched_tokens), np.asarray(self.seconds_at)
        row = np.clip(np.searchsorted(tokens, batched, side="left"), 1, len(tokens) - 1)
        slope = (times[row] - times[row - 1]) / (tokens[row] - tokens[row - 1])
        value = times[row - 1] + slope * (batched - tokens[row - 1])
        attention = np.maximum(self.alpha_s * context, self.beta_s * pairs)
        seconds = np.maximum(value, self.floor_s) + attention + self.logit_s * logits + self.request_s * requests
        return np.asarray(seconds, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Block:
    """Seconds of passes in which each request has a block of `tokens` in the place of one, as parallel drafters have.

    The further tokens have logits and attend to their request's context; blocks know nothing of each other. Where
    `queries` is not 0, a block has so many query tokens, and the tokens that a pass feeds are none of them: only their
    keys and values are made, in `fed_s` seconds each.
    """

    form: Form
    tokens: int
    queries: int = 0
    fed_s: float = 0.0

    @property
    def bend_tokens(self) -> float | None:
        """Requests from which on compute is slower than memory; None if it never is."""
        bend = self.form.bend_tokens
        return None if bend is None else bend / (self.queries or self.tokens)

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one pass."""
        return self.form.seconds(self._with_blocks(shape)) + self.fed_s * shape.batched_tokens

    def seconds_array(self, shapes: PassShapes) -> Seconds:
        """Return the seconds of many passes."""
        return self.form.seconds_array(self._with_blocks(shapes)) + self.fed_s * np.asarray(shapes.batched_tokens)

    def _with_blocks(self, shape: Any) -> Any:
        further, read = self.tokens - 1, shape.context_tokens + shape.requests
        batched, pairs = shape.batched_tokens + further * shape.requests, shape.attention_pairs + further * read
        if self.queries:
            known = shape.context_tokens + shape.batched_tokens
            batched, pairs = self.queries * shape.requests, self.queries * known
        logits = shape.logit_tokens + further * shape.requests
        return shape._replace(batched_tokens=batched, attention_pairs=pairs, logit_tokens=logits)


@dataclass(frozen=True, slots=True)
class Staged:
    """Seconds of a step of all requests on a pipeline of `stages`, as vLLM runs it.

    The requests are split into as many micro-batches as there are stages, or one for each if they are fewer. The next
    pass of a request begins when its micro-batch leaves the last stage. Micro-batches go through the stages one behind
    the other, so that a step takes as long as one of them takes through all stages, which is what `form` says.
    Micro-batches are taken to be alike: a prompt's chunk is spread over them. `in_turn`: the passes of a drafter on the
    last stage, which drafts for each micro-batch in its turn.
    """

    form: Form
    stages: int
    in_turn: bool = False

    @property
    def bend_tokens(self) -> float | None:
        """Tokens of a step from which on compute is slower than memory; None if it never is."""
        bend = self.form.bend_tokens
        return None if bend is None else bend * self.stages

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one step."""
        parts = min(self.stages, max(shape.requests, 1))
        return self.form.seconds(_part(shape, parts)) * (parts if self.in_turn else 1)

    def seconds_array(self, shapes: PassShapes) -> Seconds:
        """Return the seconds of many steps."""
        parts = np.clip(shapes.requests, 1, self.stages)
        return self.form.seconds_array(_part(shapes, parts)) * (parts if self.in_turn else 1)


def _part(shape: Any, parts: Any) -> Any:
    """Return the counts of each of so many micro-batches."""
    return shape._replace(
        context_tokens=shape.context_tokens / parts,
        batched_tokens=shape.batched_tokens / parts,
        attention_pairs=shape.attention_pairs / parts,
        logit_tokens=shape.logit_tokens / parts,
        requests=shape.requests / parts,
    )


Form: TypeAlias = Linear | Roofline | Table | Block | Staged

OVER_CACHE = ("alpha_s", "beta_s", "pair_s", "request_s")
"""Coefficients of a pass over its cache."""


def scaled(form: Form, factor: float, context: float) -> Form:
    """Return the form of passes that take `factor` times as long, and `context` times as long over the cache.

    On a pipeline they are those of a drafter.
    """
    if isinstance(form, Staged):
        return Staged(scaled(form.form, factor, context), form.stages, in_turn=True)
    if isinstance(form, Block):
        return replace(form, form=scaled(form.form, factor, context), fed_s=factor * form.fed_s)
    seconds: dict[str, Any] = {}
    for each in fields(form):
        if not each.name.endswith("tokens"):
            value, by = getattr(form, each.name), context if each.name in OVER_CACHE else factor
            seconds[each.name] = tuple(one * by for one in value) if isinstance(value, tuple) else value * by
    return replace(form, **seconds)


def delayed(form: Form, further_s: float) -> Form:
    """Return the form of passes that take so many seconds longer."""
    if isinstance(form, Block | Staged):
        return replace(form, form=delayed(form.form, further_s))
    if isinstance(form, Table):
        return replace(
            form, seconds_at=tuple(each + further_s for each in form.seconds_at), floor_s=form.floor_s + further_s
        )
    if isinstance(form, Roofline):
        return replace(form, delta_s=form.delta_s + further_s, compute_delta_s=form.compute_delta_s + further_s)
    return replace(form, delta_s=form.delta_s + further_s)


def dense(form: Form, read_s: float, token_s: float, logit_s: float, context: float) -> Form:
    """Return the form of a dense drafter's passes beside a mixture of experts, whose passes take what `form` says.

    It reads its weights in `read_s`, a batched token takes `token_s`, the logits of one `logit_s`, and its cache
    `context` times what the target's does.
    """
    if isinstance(form, Staged):
        return Staged(dense(form.form, read_s, token_s, logit_s, context), form.stages, in_turn=True)
    alpha_s, beta_s, pair_s = (context * getattr(form, name, 0.0) for name in ("alpha_s", "beta_s", "pair_s"))
    return Roofline(read_s, 0.0, 0.0, token_s, alpha_s, beta_s, pair_s=pair_s, logit_s=logit_s)
