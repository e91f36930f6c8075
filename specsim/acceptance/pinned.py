"""Acceptance pinned by the rules with which engines benchmark: so many tokens a verification, whatever the drafter.

- vLLM 0.20, ``rejection_sample_method: synthetic``: rates by draft position of all verifications, or a length L whose
  whole part is always emitted and whose fraction is the probability of one more (#40662).
- SGLang, ``SGLANG_SIMULATE_ACC_LEN``: with the method ``match-expected`` as vLLM; with ``multinomial``, its default, a
  normal number of deviation 1 around the length, rounded, at least 1 and at most k + 1.
- TensorRT-LLM, ``TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS``: draft tokens alone, the whole part always, the fraction
  as the probability of one more.

SGLang draws one number for a batch; here each verification has its own.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from specsim.acceptance.curves import MOST_POSITIONS, Acceptance, Curve
from specsim.acceptance.positions import WIDTH, conditional
from specsim.files.checked_mapping import CheckedMapping

RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
SGLANG, METHOD = "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD"
TRTLLM = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
KNOBS = (LENGTH, RATES, SGLANG, TRTLLM)
METHODS = ("multinomial", "match-expected")
"""SGLang's, its default first."""
RAREST = 1e-9
"""The least cumulative rate that is told from 0."""


def pinned(node: CheckedMapping) -> Acceptance:
    """Return the acceptance of checked keys of ``kind: pinned``: one knob of an engine (docs/acceptance.md)."""
    node.only(("kind",), ("description", "pair", METHOD, *KNOBS))
    given = [knob for knob in KNOBS if node.given(knob)]
    if len(given) != 1:
        node.fail(given[1] if given else LENGTH, f"one of {', '.join(KNOBS)}")
    (knob,) = given
    if node.given(METHOD) and knob != SGLANG:
        node.fail(METHOD, f"a key beside {SGLANG}")
    cumulative = _cumulative(node, knob)
    rates = tuple(0.0 if rate != rate else rate for rate in conditional(cumulative))
    told = list(accumulate(rates, mul))
    note = f"{knob} {node.values[knob]} accepts by position (cumulative) {', '.join(f'{each:.3g}' for each in told)}"
    curve = Curve((*rates, 0.0)[:MOST_POSITIONS], concentration=0.0, spread=0.0, tail=0.0)
    mean = f"{note}: {1 + sum(told):.4g} tokens a verification of {len(told)} drafts, the others wrong"
    return Acceptance({"default": curve}, WIDTH, 1, evidence="assumed", note=mean)


def _cumulative(node: CheckedMapping, knob: str) -> list[float]:
    """Return the share of verifications that accept each draft position, up to the last that any accepts."""
    if knob == RATES:
        rates = list(node.numbers(RATES, 1))
        if max(rates) > 1 or rates != sorted(rates, reverse=True) or len(rates) > MOST_POSITIONS:
            node.fail(RATES, f"rates from 0 to 1, none above the one before, {MOST_POSITIONS} at most")
        return rates
    if knob == SGLANG:
        length = node.number(SGLANG, above=0, most=MOST_POSITIONS)
        if not node.given(METHOD) or node.choice(METHOD, METHODS) == METHODS[0]:
            from scipy.special import ndtr

            shares = [float(ndtr(length - place - 0.5)) for place in range(1, MOST_POSITIONS)]
            return [each for each in shares if each > RAREST] or [0.0]
        accepted = max(length - 1, 0.0)
    elif knob == LENGTH:
        accepted = node.number(LENGTH, least=1, most=MOST_POSITIONS) - 1
    else:
        accepted = node.number(TRTLLM, above=0, most=MOST_POSITIONS - 1)
    return [1.0] * int(accepted) + [accepted % 1] * (accepted % 1 > 0) or [0.0]
