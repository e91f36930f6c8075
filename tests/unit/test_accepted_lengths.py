"""Accepted lengths of verifications as people have them: each form by hand, and known rates that come back."""

import json
import re

import numpy as np
import pytest
from scipy.special import ndtri

from specsim import simulate
from specsim.acceptance.curves import calibration
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.acceptance.trace import AcceptanceTrace, Pools
from tests.made import refusal

K = 3
ACCEPTED = [3, 0, 1, 3, 0, 0, 2, 1] * 10
"""Of 80 verifications 50 accept a first token, 30 a second, 20 a third: 5 / 8, 3 / 5, 2 / 3 of those that got there."""
RATES = (5 / 8, 3 / 5, 2 / 3)
HISTOGRAM = [30, 20, 10, 20]
COUNTS = {"acceptance_histogram": HISTOGRAM, "num_spec_tokens": K, "num_draft_tokens": 80 * K, "num_spec_steps": 80}


def read(folder, lines, **keys):
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    (folder / "log.jsonl").write_text(text)
    return acceptance_from_mapping({"kind": "runs", "path": "log.jsonl"} | keys, "acceptance", folder)


def drawn(centres, spread, requests, seed, tokens=200):
    """Return lines of our form: verifications of requests whose logits lie around the centres."""
    rng, lines = np.random.default_rng(seed), []
    for request in range(requests):
        rates = 1 / (1 + np.exp(-(np.array(centres) + spread * rng.standard_normal())))
        accepted = []
        while sum(accepted) + len(accepted) < tokens:
            accepted.append(int(np.cumprod(rng.random(len(rates)) < rates).sum()))
        lines.append({"request": request, "category": "chat", "k": len(rates), "accepted": accepted})
    return lines


SGLANG_LOG = (
    "[2026-02-05 02:59:07] Finish: obj=GenerateReqInput(rid='a'), out={'meta_info': {'id': 'a', 'spec_verify_ct': 80, "
    f"'spec_draft_token_num': 240, 'spec_accept_histogram': {HISTOGRAM}}}}}"
)
VLLM_LOG = (
    "(APIServer pid=1) INFO 04-22 19:12:46 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.25, "
    "Accepted throughput: 5 tokens/s, Drafted throughput: 12 tokens/s, Accepted: 100 tokens, Drafted: 240 tokens, Per-"
    "position acceptance rate: 0.625, 0.375, 0.250, Avg Draft acceptance rate: 41.7%"
)
VLLM_METRICS = 'vllm:spec_decode_num_drafts_total{engine="0"} 80.0\n' + "\n".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{place}"}} {count}.0'
    for place, count in enumerate((50, 30, 20))
)
SPEC = {"spec_accept_histogram": HISTOGRAM, "spec_draft_token_num": 240}
FORMS = {
    "ours": {"k": K, "accepted": ACCEPTED},
    "ours, histogram": {"k": K, "histogram": HISTOGRAM},
    "vLLM": {"metrics": {"speculative_decoding": COUNTS}},
    "a text's breaks": '{"text": "one\u2028two\x85", "k": 3, "histogram": [30, 20, 10, 20]}',
    "aiperf": {"spec_decode_acceptance": COUNTS | {"acceptance_histogram": {"0": 30, "1": 20, "2": 10, "3": 20}}},
    "TensorRT-LLM": {"choices": [{"speculative_decoding": COUNTS}]},
    "SGLang": {"meta_info": {"spec_correct_drafts_histogram": HISTOGRAM, "spec_num_proposed_drafts": 240}},
    "SGLang's JSON log": {"event": "request.finished", "out": {"meta_info": SPEC}},
    "SGLang's log": SGLANG_LOG,
    "vLLM's log": VLLM_LOG,
    "vLLM's metrics": VLLM_METRICS,
}


@pytest.mark.parametrize("line", FORMS.values(), ids=FORMS)
def test_each_form_tells_the_same_rates(tmp_path, line):
    curve = read(tmp_path, [line], match=0.4).curves["default"]
    assert (curve.rates, curve.chain, curve.match) == (pytest.approx((*RATES, *RATES[-1:] * 5), rel=1e-9), K, 0.4)


def test_a_servers_intervals_and_engines_are_pooled(tmp_path):
    """A first interval of k = 1, 80 of 100 right, says nothing of the second position; then k = 2: 80 and 40 of 100.

    Of two engines one has 90 of 100 right, the other 10 of 300: 1 / 4, whatever the first scrape told.
    """
    interval = "Drafted: {} tokens, Per-position acceptance rate: {}"
    made = read(tmp_path, [interval.format(100, "0.8"), interval.format(200, "0.8, 0.4")])
    assert made.curves["default"].rates[:2] == pytest.approx((0.8, 0.5))
    assert "a server, 200 verifications" in str(made.notes)
    lines = VLLM_METRICS.splitlines()[:2] + [
        f'vllm:spec_decode_num_{name}_total{{engine="{engine}"{label}}} {count}'
        for engine, counts in ((0, (100, 90)), (1, (300, 10)))
        for name, label, count in zip(("drafts", "accepted_tokens_per_pos"), ("", ',position="0"'), counts, strict=True)
    ]
    assert read(tmp_path, lines).curves["default"].rates[0] == pytest.approx(0.25)


def test_every_output_position_of_specdecode_bench_is_walked_in_chains_of_k(tmp_path):
    """From 0 one token is emitted, from 1 five of which k = 3 accepts three, then from 5, 7 and 8: 0, 3, 1, 0, 2."""
    line = {"id": "134", "acc_eagle": {"acc_len": [1, 5, 4, 3, 2, 2, 1, 1, 3, 2, 1]}}
    curve = read(tmp_path, [line] * 10, k=3, field="acc_eagle").curves["default"]
    assert curve.rates[:3] == pytest.approx((3 / 5, 2 / 3, 1 / 2))
    assert re.search("line 1: acc_eagle.acc_len: .* expected k", refusal(read, tmp_path, [line], field="acc_eagle"))


def test_a_rate_is_of_those_verifications_that_tell_of_its_position(tmp_path):
    """Twenty drafts of one token, all right, and twenty of two, of which 5 get one and 5 two: 30 / 40, then 5 / 10.

    Of 100 verifications 40 reach the second position and 15, too few, the third: 0.4, 0.375, and for 7 / 15 the
    7 right with 5 tries of the rate before, of 20. The mean length is 1 + (40 + 15 + 7) / 100.
    """
    shorter = {"k": [1] * 20 + [2] * 20, "accepted": [1] * 20 + [2, 1, 0, 0] * 5}
    assert read(tmp_path, [shorter] * 2).curves["default"].rates[:2] == pytest.approx((30 / 40, 5 / 10))
    few = {"k": 3, "histogram": [60, 25, 8, 7]}
    made = read(tmp_path, [few])
    assert made.curves["default"].rates[:4] == pytest.approx((0.4, 0.375, *[(7 + 5 * 0.375) / 20] * 2))
    assert "100 verifications of 1.62 tokens, fewer than 20 at position 3: rates there lean on" in str(made.notes)
    deeper = [f"speculative_eagle_topk=4 {SGLANG_LOG}".replace("240", "400")]
    assert read(tmp_path, deeper, k=K).curves["default"].rates[:K] == pytest.approx(RATES)
    assert ", none of 20 right at position 4: k of trees is" in str(read(tmp_path, deeper, k=5).notes)


@pytest.mark.parametrize(("spread", "seed"), [(0.0, 5), (0.0, 7), (0.0, 10), (0.8, 5)])
def test_known_rates_and_spread_come_back(tmp_path, spread, seed):
    """Rates within three standard errors of so many verifications, the spread within three of so many requests."""
    centres, requests = [1.5, 1.0, 0.8], 200
    lines = drawn(centres, spread, requests, seed)
    made = read(tmp_path, lines)
    curve = made.curves["chat"]
    assert abs(curve.spread - spread) < 3 * (spread / (2 * requests) ** 0.5 + 0.02)
    assert f"200 requests, {sum(len(each['accepted']) for each in lines):,} verifications" in str(made.notes)
    if not spread:
        assert curve.rates[:3] == pytest.approx(1 / (1 + np.exp(-np.array(centres))), abs=0.015)


@pytest.mark.parametrize("verifications", [100, 20_000])
def test_a_wide_spread_comes_back_from_short_and_long_requests(tmp_path, verifications):
    """Logits of 40 requests at the normal quantiles, 1.5 apart: a deviation of 1.48; counts as they are expected."""
    rates = 1 / (1 + np.exp(-(np.array([[1.2], [0.8]]) + 1.5 * ndtri((np.arange(40) + 0.5) / 40))))
    reached = np.array([np.ones(40), rates[0], rates[0] * rates[1], np.zeros(40)])
    bars = np.round(-np.diff(reached, axis=0) * verifications).astype(int).T.tolist()
    made = read(tmp_path, [{"k": 2, "histogram": each} for each in bars])
    assert made.curves["default"].spread == pytest.approx(1.48, rel=0.05)
    assert "fitted" in str(made.notes)


def test_categories_have_their_own_rates_and_default_is_all(tmp_path):
    easy, hard = drawn([2.0], 0.3, 40, seed=1), drawn([-1.0], 0.3, 40, seed=2)
    made = read(tmp_path, easy + [each | {"category": "code"} for each in hard])
    assert made.curves["chat"].rates[0] > made.curves["default"].rates[0] > made.curves["code"].rates[0]
    assert made.curves["default"].spread > made.curves["chat"].spread


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (drawn([1.0, 0.5], 0.5, 5, seed=3), "assumed, as the counts are of fewer than 10 requests: 0.5"),
        (drawn([1.0, 0.5], 0.5, 12, seed=3, tokens=6), "assumed, as these requests tell"),
        (
            [{"k": 1, "histogram": [600_000 + each, 400_000]} for each in range(12)],
            "assumed, as a request of over 100,000 verifications is several: 0.5",
        ),
    ],
    ids=["few requests", "few tokens", "a million"],
)
def test_counts_that_cannot_tell_the_spread_say_so(tmp_path, lines, said):
    made = read(tmp_path, lines)
    assert said in str(made.notes)
    assert {each.spread for each in made.curves.values()} == {0.5}
    assert {each.spread for each in read(tmp_path, lines, spread=0.1).curves.values()} == {0.1}


def test_aiperf_warm_up_and_drafts_cut_short_are_told_apart(tmp_path):
    warm = {"metadata": {"benchmark_phase": "warmup", "source_kind": "coding"}, "spec_decode_acceptance": COUNTS}
    cut = {"metadata": {"source_kind": "coding"}, "spec_decode_acceptance": COUNTS | {"num_draft_tokens": 235}}
    made = read(tmp_path, [warm, cut])
    assert "coding: 1 requests, 80 verifications of 2.25 tokens, 5 tokens fewer drafted than k each" in str(made.notes)
    assert made.curves.keys() == {"coding", "default"}
    scraped = VLLM_METRICS + '\nvllm:spec_decode_num_draft_tokens_total{engine="0"} 220.0'
    for shorter in (scraped, VLLM_LOG.replace("Drafted: 240", "Drafted: 220")):
        assert "80 verifications of 2.25 tokens, 20 tokens fewer" in str(read(tmp_path, [shorter]).notes)
    rounded = "Accepted: 54 tokens, Drafted: 30000 tokens, Per-position acceptance rate: 0.005, 0.000, 0.000"
    assert "fewer drafted" not in str(read(tmp_path, [rounded]).notes), "0.0054 is 0.005 with three decimals"


def test_a_run_takes_a_log_and_reproduces_it(tmp_path):
    wanted = read(tmp_path, drawn([1.5, 1.0, 0.8], 0.5, 100, seed=4)).curves["chat"]
    path = str(tmp_path / "log.jsonl")
    run = simulate("vllm_spec", "poisson", requests=200, acceptance=path, scheduler__num_speculative_tokens=3)
    rates = run.metrics["spec_decode_per_position_acceptance_rates"]
    assert rates == pytest.approx(np.cumprod(wanted.rates[:3]), abs=0.03)
    counts = run.metrics["spec_decode_num_accepted_tokens_per_pos"]
    assert counts == [run.requests[f"accepted_tokens_per_pos.{place}"].sum() for place in range(3)]
    assert rates == [count / run.metrics["spec_decode_num_drafts"] for count in counts]
    assert any("chat: 100 requests" in note for note in run.notes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"k": 2, "accepted": [3]}, "line 1: accepted: 3 tokens accepted of 2 drafted"),
        ({"k": 2, "accepted": [1], "histogram": [0, 1]}, "line 1: histogram: beside accepted; expected one of them"),
        ({"k": [2], "accepted": [1, 1]}, "line 1: accepted: 2 verifications, but 1 drafts"),
        ({"k": 2, "histogram": {"9" * 20: 1}}, "line 1: histogram: .* is not verifications by accepted tokens, 0 to 6"),
        ("{" + '"a":{' * 100_000, "line 1: is damaged"),
        (VLLM_LOG.replace("0.250", "0.850"), "line 1: more tokens accepted at a draft position than at the one before"),
        (VLLM_LOG.replace("0.250", ", ".join(["0.250"] * 63)), "line 1: 65 draft positions; expected at most 64"),
        (VLLM_METRICS.replace("80.0", "8e999"), "more tokens accepted at a draft position"),
        (VLLM_METRICS.replace('"1"', '"7"'), "a draft position before the last has no counter"),
        ("speculative_eagle_topk=4 " + SGLANG_LOG, "accepted lengths of trees .speculative_eagle_topk 4.; expected"),
        ({"text": "hello"}, "no accepted lengths; expected those of aiperf, vLLM, SGLang"),
    ],
)
def test_what_is_no_log_is_one_line(tmp_path, line, said):
    assert re.search(said, refusal(read, tmp_path, [line]))


def test_calibration_is_counted_anew_for_another_rank_and_for_one_that_is_written():
    confidence, start = np.full((8, 2), 0.25), np.zeros(3, dtype=np.int64)
    confidence.flags.writeable = False

    def agreement(rank):
        text = AcceptanceTrace(confidence, rank, Pools(start, start, 8), np.zeros(3, dtype=np.uint64))
        return calibration(text, start, ("chat",))["chat"]["top1_agreement"]

    right, written = np.zeros(8, dtype=np.int64), np.zeros(8, dtype=np.int64)
    wrong = right + 1
    right.flags.writeable = wrong.flags.writeable = False
    assert [agreement(each) for each in (right, right, wrong, right, written)] == [1, 1, 0, 1, 1]
    written[:] = 1
    assert agreement(written) == 0
