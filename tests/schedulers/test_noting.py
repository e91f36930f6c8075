"""What a scheduler notes of requests: in the rows, in the metrics, on disk; and what it may not note."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim import load_run, simulate
from specsim.errors import SchedulerFault
from specsim.schedulers.fcfs import Fcfs
from specsim.server.events import noted_by as noted
from specsim.simulation import run
from specsim.store.runs import read_run
from tests.golden.scene import scene
from tests.laws.subjects import factory_of, raw_of

SHORT: dict[str, Any] = {"trace": "poisson", "requests": 12, "rps": 20, "profile": "llama8b_1b_h100"}


class Noting(Fcfs):
    notes: Any

    def noted(self, requests: int) -> Any:
        return self.notes


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({"luck": np.zeros(3)}, r"noted luck has shape \(3,\); expected \(4,\)"),
        ({"my luck": np.zeros(4)}, "noted 'my luck'; expected a name"),
        ({"luck": np.array(["a"] * 4)}, "ValueError"),
    ],
)
def test_anything_else_is_the_schedulers_fault(notes, why, monkeypatch):
    monkeypatch.setattr(Noting, "notes", notes, raising=False)
    with pytest.raises(SchedulerFault, match=f"scheduler Noting: .*{why}"):
        noted([Noting(8)], np.zeros(4, dtype=np.int64))


def test_laps_sds_estimates_are_rows_and_means(tmp_path):
    made = simulate("laps_sd", **SHORT, out=tmp_path / "run")
    stored = read_run(tmp_path / "run").requests
    assert stored.equals(made.requests)
    notes = stored.filter(like="noted.")
    assert (notes["noted.predicted_output_tokens"] == stored["output_tokens"]).all()
    told = notes["noted.perception_rounds"].notna()
    assert 0 < told.sum() < len(told), "a short output may end before its rate is steady"
    assert (notes["noted.perception_tokens"][told] < stored["output_tokens"][told]).all()
    error = (notes["noted.estimated_service_s"] / notes["noted.service_s"] - 1).abs()
    assert np.allclose(notes["noted.estimate_error"], error, equal_nan=True)
    block = made.metrics["specsim"]
    assert block["noted"]["estimate_error"] == pytest.approx(error.mean())
    by_class = {name: part["noted"]["service_s"] for name, part in block["classes"].items()}
    assert by_class == pytest.approx(stored.groupby("slo_class")["noted.service_s"].mean().to_dict())
    assert notes["noted.service_s"].sum() == pytest.approx(
        sum(block["time_s"][kind] for kind in ("prefill", "draft", "verify"))
    )


def test_the_moving_time_of_all_requests_is_what_switching_adds_to_the_passes():
    batching = raw_of("las")["batching"] | {"quantum_s": 0.0}
    factory = factory_of("las", batching=batching, switching="transfer", max_num_seqs=1)
    simulated = replace(scene(), scheduler=factory, keep_passes=True)
    free, dear = (run(replace(simulated, host_bytes_per_s=speed)) for speed in (float("inf"), 1e3))
    assert free.totals.moving_s == 0 < dear.totals.moving_s
    assert dear.moving_s.sum() == pytest.approx(dear.totals.moving_s)
    assert ((dear.moving_s > 0) == (dear.progress.preemptions > 0)).all()
    assert (dear.moving_s * 1e3 == dear.progress.moved_bytes).all()
    spent_s = [each.totals.prefill_s + each.totals.draft_s + each.totals.verify_s for each in (free, dear)]
    passes = [len(each.passes["seconds"]) for each in (free, dear) if each.passes is not None]
    assert passes[0] == passes[1], "one slot, and moving is no service: the same passes"
    assert spent_s[1] - spent_s[0] == pytest.approx(dear.totals.moving_s)


@pytest.mark.parametrize(
    ("numbers", "mean", "infinite"), [((1.0, 2.0), 1.5, 0), ((1.0, np.inf), 1.0, 5), ((1e308, 1e308), None, 0)]
)
def test_an_infinite_number_is_kept_and_told(numbers, mean, infinite, tmp_path, monkeypatch):
    monkeypatch.setattr(Noting, "notes", {"estimate": np.resize(np.array(numbers), 10)}, raising=False)
    simulate(Noting(8), "poisson", requests=10, profile="llama8b_1b_h100", out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert np.array_equal(run.requests["noted.estimate"], np.resize(np.array(numbers), 10), equal_nan=True)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["specsim"]["noted"] == {"estimate": mean}
    told = [note for note in run.notes if "noted.estimate" in note]
    said = f"noted.estimate is infinite for {infinite} of 10 requests: its mean leaves them out"
    assert [said in note and "Noting" in note for note in told] == ([True] if infinite else [])


HALF = {"acceptance": "bernoulli", "acceptance.alpha": 0.5, "scheduler.num_speculative_tokens": 3}
HALF |= {"scheduler.speculation._target_": "specsim.schedulers.estimated_chains.EstimatedChains"}
ESTIMATED, MATCHED = "noted.estimated_tokens_per_verification", "noted.matched_tokens_per_verification"


def test_the_estimate_is_the_sum_of_path_probabilities_and_the_bonus_token():
    rows = simulate("vllm_spec", **SHORT | {"requests": 40}, **HALF).requests
    assert rows[ESTIMATED].to_numpy() == pytest.approx(np.full(40, 1 + 0.5 + 0.25 + 0.125))
    # The confidences are the chances, so what came is what was expected, give or take the luck of some 2,000 steps.
    assert np.average(rows[MATCHED], weights=rows["verifications"]) == pytest.approx(1.875, abs=0.08)
    # Emitted tokens are cut at the output's end, matched ones are not.
    assert (rows[MATCHED] * rows["verifications"] >= rows["decoded_tokens"] - 1e-9).all()
    assert (rows[MATCHED] * rows["verifications"] <= rows["decoded_tokens"] + 3 + 1e-9).all()
