"""docs/advice.md: from a benchmark's file to a configuration, with the commands as they stand there."""

import json
import re
from pathlib import Path

import pytest

from specsim import load_sweep, simulate
from specsim.cli import main
from tests.files import block, commands, page

pytest.importorskip("aiconfigurator_core")

COMMANDS = commands(page("advice"))
CLIENTS, DRAFTS = (1, 2, 4, 8, 16, 32, 64, 96), 3


def result(clients, drafts):
    """Return what `vllm bench serve` would save of a simulated server."""
    speculation = {"scheduler": "vllm_spec", "scheduler.num_speculative_tokens": drafts}
    lengths = {"trace.prompt_tokens": 256, "trace.output_tokens": 128, "requests": max(40, 4 * clients)}
    policy = speculation if drafts else {"scheduler": "vllm"}
    shared = {"trace": "poisson", "profile": "llama8b_eagle3_h100", "slo": "one", "progress": False}
    run = simulate(concurrency=clients, **policy, **lengths, **shared)
    done = run.requests
    told = {
        **{key: run.metrics[key] for key in ("mean_ttft_ms", "mean_tpot_ms")},
        **{"completed": len(done), "max_concurrency": clients, "request_rate": "inf"},
        "total_input_tokens": int(done["prompt_tokens"].sum()),
        "total_output_tokens": int(done["output_tokens"].sum()),
        "input_lens": done["prompt_tokens"].tolist(),
        "output_lens": done["output_tokens"].tolist(),
        "start_times": (1000 + done["arrival_s"]).tolist(),
        "ttfts": done["ttft_s"].tolist(),
        "errors": [""] * len(done),
    }
    if drafts:
        count = int(done["speculations"].sum())
        rates = [done[f"accepted_tokens_per_pos.{place}"].sum() / count for place in range(drafts)]
        told |= {
            "spec_decode_acceptance_rate": 100 * sum(rates) / drafts,
            "spec_decode_acceptance_length": 1 + sum(rates),
            "spec_decode_num_drafts": count,
            "spec_decode_per_position_acceptance_rates": rates,
        }
    return told


@pytest.mark.slow
@pytest.mark.usefixtures("here", "one_condition")
def test_five_commands_lead_from_a_benchmark_to_what_is_pasted(capsys):
    results = [result(clients, drafts) for clients in CLIENTS for drafts in (0, DRAFTS)]
    Path("bench.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in results))
    assert len(COMMANDS) == 5
    for words in COMMANDS:
        assert main(words) == 0, words
    told = capsys.readouterr().out
    assert block(page("advice"), "text") in told
    (median,) = re.findall(r"^all +16 +([0-9.]+) ", told, re.M)
    assert float(median) < 5, "the calibrated engine is the one that was measured, but for composed passes"
    # The two files that the last command runs attain at 25 requests/s what the answer says of them.
    (gain,) = re.findall(r"^\+([0-9.]+) \u00b1 [0-9.]+ points against vllm \(", told, re.M)
    runs = load_sweep("check").select(rps=25.0).table.query("slo_class == 'all'").set_index("scheduler")
    tuned, plain = (runs["slo_attainment"][f"results/tune/{name}.yaml"] for name in ("vllm_spec", "vllm"))
    assert 100 * (tuned - plain) == pytest.approx(float(gain), abs=10)


@pytest.mark.usefixtures("here", "one_condition")
def test_one_result_without_speculation_is_enough_and_what_stands_in_is_named(capsys):
    Path("bench.jsonl").write_text(json.dumps(result(4, 0)))
    first, composed, _, tuned, _ = COMMANDS
    few = {"acceptance", "engine", "trace", "requests"}
    words = [word for word in tuned if word.partition("=")[0] not in few]
    words[words.index("--trials") + 1] = "2"
    for each in (first, composed, [*words, "trace=mine/trace.csv", "seed=0"]):
        assert main(each) == 0, each
    told = capsys.readouterr().out
    assert "mine/trace.csv: bench.jsonl: read as benchmark result JSON: input_lens, output_lens; 40 requests" in told
    assert "no acceptance: " in told
    assert "note: engine=vllm_0_18, acceptance=llama8b_eagle3 (with profile=mine/profile.yaml), as suggested" in told
    assert "--speculative-config '" in told
