"""Loads without events: their times are a run's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from specsim import simulate
from specsim.calibration.replay import BenchLoad, Door, served
from specsim.latency.engine import Engine
from specsim.latency.profile import load_profile

PROFILE = load_profile("llama8b_1b_h100")
ENGINES = [
    Engine(overhead_s=0.0),
    Engine(overhead_s=9.3e-4, request_s=4.5e-5, graph_tokens=tuple(range(8, 513, 8))),
    Engine(overhead_s=4e-5, request_s=1.4e-5, pipeline_steps=1, frontend_s=5.2e-3),
]


def simulated(scheduler, trace, engine, *keys, **settings):
    """Return a run of the trace on the profile and on these keys of the engine."""
    told = {f"engine__{key}": getattr(engine, key) for key in keys}
    return simulate(scheduler, trace, profile="llama8b_1b_h100", engine="profiled", **told, **settings)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "load",
    [
        BenchLoad(5000, 10, 3, 9),
        BenchLoad(1000, 30, 16, 48),
        BenchLoad(900, 40, 7, 21, 0.6),
        BenchLoad(700, 30, 0, 60, rate=20.0),
    ],
)
@pytest.mark.parametrize("scheduler", ["sarathi", "continuous"])
def test_a_loop_takes_what_a_run_takes(load, engine, scheduler):
    """The same clients in a whole simulation, whose scheduler mixes chunks or reads prompts first, under one budget.

    In the first load a prompt is longer than the budget.
    """
    isl, osl = load.lengths()
    arrival_s = load.arrival_s() if load.rate else 0.0
    trace = pd.DataFrame({"arrival_s": arrival_s, "prompt_tokens": isl, "output_tokens": osl})
    settings = {"engine__graph_tokens": [8], "engine__graph_step": 8} if engine.graph_tokens else {}
    settings |= {"scheduler__max_num_batched_tokens": 2048, "concurrency": load.concurrency or None}
    run = simulated(scheduler, trace, engine, "overhead_s", "request_s", "pipeline_steps", "frontend_s", **settings)
    ttft_s = (run.requests.first_token_s - run.requests.arrival_s).mean()
    tpot_s = ((run.requests.finish_s - run.requests.first_token_s) / (osl - 1)).mean()
    target = engine.running(PROFILE).target
    model = target if engine.frontend_s or load.rate else None
    door = Door(engine.pipeline_steps, engine.frontend_s, model, prompts_first=scheduler == "continuous")
    loop = served(load, 2048, door)
    assert loop.latencies(target) == pytest.approx((ttft_s, tpot_s), rel=1e-12)
    bare = replace(engine, overhead_s=0.0, request_s=0.0).running(PROFILE).target
    priced = [cost.seconds(engine.overhead_s or 0.0, engine.request_s) for cost in loop.costs(bare)]
    assert priced == pytest.approx([ttft_s, tpot_s], rel=1e-12)


@pytest.mark.parametrize(("alpha", "length"), [(0, 1.0), (0.5, 1.875)])
def test_a_loop_with_drafts_takes_about_what_a_run_takes(alpha, length):
    """The run's chains are accepted by luck and end with their request; the loop's steps bring the mean."""
    load = BenchLoad(300, 120, 8, 24, drafts=3, acceptance_length=length)
    trace = pd.DataFrame({"arrival_s": 0.0, "prompt_tokens": [300] * 24, "output_tokens": 120})
    engine = Engine(overhead_s=1e-3, request_s=5e-5, draft_launch_s=4e-3)
    settings = {"acceptance": "bernoulli", "acceptance__alpha": alpha, "scheduler__num_speculative_tokens": 3}
    keys = "overhead_s", "request_s", "draft_launch_s"
    run = simulated("vllm_spec", trace, engine, *keys, concurrency=8, **settings)
    running = engine.running(PROFILE)
    ttft_s, tpot_s = served(load, 8192).latencies(running.target, running.draft)
    assert tpot_s == pytest.approx(run.metrics["mean_tpot_ms"] / 1e3, rel=0.02)
    assert alpha or ttft_s == pytest.approx(run.metrics["mean_ttft_ms"] / 1e3, rel=0.02), "luck parts the clients"


def test_arrivals_at_a_rate_end_when_they_should():
    arrival_s = BenchLoad(100, 10, 0, 500, rate=4.0).arrival_s()
    assert arrival_s[-1] == pytest.approx(125.0)
    gaps = np.diff(arrival_s)
    assert (gaps > 0).all()
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)
