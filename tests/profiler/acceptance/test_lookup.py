"""Prompt lookup against a brute-force search and against transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

made = pytest.importorskip("tests.profiler.acceptance.made", reason="needs torch", exc_type=ImportError)

from transformers.generation import candidate_generator  # noqa: E402

from profiler.acceptance.drafters import NOTHING, LookupHit, LookupRecorder, lookups  # noqa: E402
from profiler.acceptance.network import network  # noqa: E402

pytestmark = pytest.mark.torch
REPEATING = made.llama(seed=10), [5, 6, 7, 8, 5, 6, 7, 9, 5, 6]
"""A model and a prompt whose greedy text falls into a cycle after a while."""


def found(text: list[int], fewest: int, most: int) -> tuple[int, int]:
    """Return where the text goes on behind the longest, then earliest, match of its end, and the match's length."""
    for length in range(min(most, len(text) - 1), fewest - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[-length:]:
                return start + length, length
    return len(text), 0


def brute(text: list[int], fewest: int, most: int) -> LookupHit:
    behind, length = found(text, fewest, most)
    return LookupHit(text[behind] if length else NOTHING, length)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(1, 4), st.integers(0, 4), st.data())
def test_lookups_equal_a_search_from_scratch(text: list[int], fewest: int, more: int, data: st.DataObject) -> None:
    first, most = data.draw(st.integers(1, len(text) - 1)), fewest + more
    on, off = lookups(np.array(text), first, fewest, most)
    assert on == [brute(text[:index], fewest, most) for index in range(first, len(text))]
    for place, index in enumerate(range(first, len(text))):
        proposed = on[place - 1].token if place else NOTHING
        if proposed in (NOTHING, text[index - 1]):
            assert off[place] is None
        else:
            assert off[place] == brute([*text[: index - 1], proposed], fewest, most)


def rows_of(model, prompt, tokens: int, fewest: int, most: int):
    text = made.written(model, [prompt], tokens=tokens)[0]
    drafter = LookupRecorder(network(model, "tiny"), made.WORDS, 0.0, 8, fewest, most, 1)
    return text, drafter.rows(made.torch.tensor(prompt), text, np.uint64(0))


def test_rows_hold_matches_ranks_and_the_targets_probability_also_of_a_text_of_one_token() -> None:
    model, prompt = REPEATING
    text, rows = rows_of(model, prompt, 40, 1, 4)
    tokens, on = text.tokens.tolist(), rows.path < 0
    for position, token in enumerate(tokens):
        hit = brute([*prompt, *tokens[:position]], 1, 4)
        assert (rows.match[position], rows.rank[position]) == (hit.match, 0 if hit.token == token else 8)
        assert rows.confidence[position].tolist() == [float(hit.match > 0)] + [0.0] * 7
        p = np.exp(made.logits(model, [*prompt, *tokens[:position]])[-1])
        expected = p[hit.token] / p.sum() if hit.match else 0.0
        assert rows.target_probability[position, 0] == pytest.approx(expected)
    assert 0 < (rows.rank[on] == 0).sum() < len(tokens)
    assert np.isnan(rows.overlap).all()
    text, rows = rows_of(REPEATING[0], [5, 6, 7], 1, 1, 4)
    assert len(text.tokens) == len(rows.rank) == 1
    assert rows.match.tolist() == [0]
    assert not rows.confidence.any()


def test_prompt_lookup_decoding_accepts_what_the_trace_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matches of any length: then looking up again at each token proposes what the one match goes on with.

    Where that match runs into the end of the text, transformers stops; ours reads on in its own proposals.
    """
    model, prompt = REPEATING
    text, rows = rows_of(model, prompt, 60, 1, 99)
    right, tokens = rows.rank[rows.path < 0] == 0, text.tokens.tolist()
    expected, position = [], 0
    while position < len(right):
        known = [*prompt, *tokens[:position]]
        most = min(4, len(known) - found(known, 1, 99)[0])
        expected.append(int(np.argmin(np.append(right[position : position + most], False))))
        position += expected[-1] + 1
    runs: list[int] = []
    kind = candidate_generator.PromptLookupCandidateGenerator
    monkeypatch.setattr(kind, "update_candidate_strategy", lambda self, ids, scores, matched: runs.append(int(matched)))
    lookup = {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 99}
    model.generate(made.torch.tensor([prompt]), **lookup, max_new_tokens=len(right), do_sample=False)
    assert runs == expected
    assert sum(runs) > 15
    assert 0 in runs
