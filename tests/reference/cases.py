"""Random cases, each as a simulation of specsim and as the reference's own servers."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from specsim.latency.forms import Linear, Roofline, scaled
from specsim.latency.model import ModelLatency
from specsim.simulation import Simulation
from tests.laws.subjects import factory_of
from tests.made import LENGTHS, acceptance_trace, memory, requests, simulation
from tests.reference import policies
from tests.reference.hardware import Hardware, PassCost, linear, roofline, text
from tests.reference.request import Request
from tests.reference.server import Server

POLICIES = ("fcfs", "continuous", "sarathi", "vllm_spec", "vllm_v0_spec")
GAPS_S = st.sampled_from((0.0, 0.0, 2.0**-7, 2.0**-6, 2.0**-6, 2.0**-4, 0.02, 0.3, 5.0))
"""Bursts, pauses, and whole passes on a binary grid, one of which then ends exactly at an arrival."""
ROW = st.tuples(GAPS_S, LENGTHS, LENGTHS, st.sampled_from((0, 0, 1, 6)))
"""Gap before the arrival, prompt, output, what max_tokens allows beyond it."""
ROOMS = st.sampled_from((100.0, 0.6, 1.0, 1.5))
CROWD = st.tuples(*map(st.sampled_from, ((0.0, 0.0, 2.0**-7, 2.0**-6), (1, 3, 8, 11), (11, 17, 24, 30), (0, 6))))
"""At once and with outputs longer than prompts: whoever is let in outgrows a small cache, and others are preempted."""
CROWDED_ROOMS = st.sampled_from((1.0, 1.2, 1.5, 2.0, 3.0))


@dataclass(frozen=True)
class Truth:
    """A target and a drafter; none of these schedulers asks for a baseline."""

    target: ModelLatency
    draft: ModelLatency
    baseline_s: float = 0.0


@dataclass(frozen=True)
class Case:
    """One simulation with its scheduler, the reference's scheduler and the two costs of a pass in the reference."""

    simulation: Simulation
    policy: policies.Policy
    draft_s: PassCost
    target_s: PassCost

    def servers(self) -> list[Server]:
        """Return the reference's replicas, before they serve."""
        told, truth, pool = self.simulation.requests, self.simulation.ground_truth, self.simulation.memory
        ranks, keys = truth.acceptance_trace.rank.tolist(), truth.acceptance_trace.keys
        columns = (told.arrival_s, told.prompt_tokens, told.max_tokens, truth.output_tokens, keys)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        mine = [Request(number, *row[:4], text(row[4], ranks)) for number, row in enumerate(rows)]
        sizes = pool.capacity_bytes, pool.block_tokens, pool.target_token_bytes, pool.draft_token_bytes
        replicas = self.simulation.replicas
        delays = self.simulation.frontend_s, self.simulation.pipeline_steps
        hardware = Hardware(self.draft_s, self.target_s, *sizes, *delays)
        return [Server(hardware, mine[each::replicas]) for each in range(replicas)]


SHIPPED = {"vllm_v0_spec": ("vllm_spec", "prompts_first")}
"""The shipped scheduler and the order of prompts that a policy of the reference is, where it is not of that name."""


@st.composite
def cases(draw: st.DrawFn, name: str) -> Case:
    """Draw a case of one scheduler: workload, memory, costs, text, replicas and the scheduler's parameters."""
    crowded = draw(st.booleans())
    rows = draw(st.lists(CROWD, min_size=6, max_size=12) if crowded else st.lists(ROW, min_size=1, max_size=30))
    gaps, prompts, outputs, slack = (np.array(column) for column in zip(*rows, strict=True))
    told = requests(np.cumsum(gaps) - gaps[0], prompts, outputs + slack)
    parameters = draw(_parameters(name))
    kind = draw(st.sampled_from(("grid", "linear", "roofline")))
    (target, target_s), (draft, draft_s) = _models(draw, kind, 1.0), _models(draw, kind, 0.125)
    room = draw(CROWDED_ROOMS if crowded else ROOMS)
    return Case(
        simulation(
            told,
            outputs,
            factory_of(*SHIPPED.get(name, (name,)), **parameters),
            pool=memory(told, room, draw(st.sampled_from((1, 4, 16)))),
            truth=Truth(target, draft),
            text=acceptance_trace(len(told), draw(st.sampled_from((0.1, 0.5, 0.9))), draw(st.integers(0, 3))),
            replicas=draw(st.sampled_from((1, 1, 2, 3))),
            frontend_s=draw(st.sampled_from((0.0, 0.0, 2.0**-7, 0.02))),
            pipeline_steps=draw(st.sampled_from((0, 0, 1, 2))),
        ),
        getattr(policies, name)(**parameters),
        draft_s,
        target_s,
    )


def _parameters(name: str) -> st.SearchStrategy[dict[str, Any]]:
    slots, tokens = st.sampled_from((40, 8, 3, 2, 1)), st.sampled_from((64, 40, 24, 13, 8, 5, 2, 1))
    if name == "fcfs":
        return st.fixed_dictionaries({"max_num_seqs": slots})
    every = {"max_num_seqs": slots, "watermark": st.sampled_from((0.0, 0.0, 0.01, 0.3))}
    every["max_num_batched_tokens"] = tokens
    if "spec" not in name:
        return st.fixed_dictionaries(every)
    given = st.fixed_dictionaries({**every, "num_speculative_tokens": st.integers(0, 6)})
    return given.filter(lambda each: "v0" in name or each["max_num_batched_tokens"] > each["num_speculative_tokens"])


FEW_TOKENS = ((0.0, (), ()), (1e-4, (-1e-4, 2e-4, 4e-4), (-1e-4, 1e-4)))
"""What passes of few tokens take beside the roofline: `single_s`, `few_s` and `few_logits_s`."""


def _models(draw: st.DrawFn, kind: str, scale: float) -> tuple[ModelLatency, PassCost]:
    """Draw the latency of a model, as specsim's and as the reference's; `grid`: every pass takes the same 2^-n s."""
    if kind == "grid":
        return _line(Linear(0.0, 0.0, 2.0**-6 * scale), 0.0)
    overhead_s = draw(st.sampled_from((0.0, 1e-3))) * scale
    if kind == "linear":
        return _line(Linear(draw(st.sampled_from((0.0, 1e-6))), 1e-4 * scale, 1.3e-2 * scale), overhead_s)
    tiles, (single_s, few_s, few_logits_s) = draw(st.sampled_from((1, 8))), draw(st.sampled_from(FEW_TOKENS))
    pair_s, logit_s = draw(st.sampled_from((0.0, 1e-8))), draw(st.sampled_from((0.0, 1e-6)))
    roof = Roofline(6.6e-3, 9.3e-6, 1.5e-3, 2.2e-4, 2.6e-7, 6.0e-8, tiles, single_s)
    roof = scaled(replace(roof, few_s=few_s, few_logits_s=few_logits_s), scale, scale)
    roof = replace(roof, pair_s=pair_s, logit_s=logit_s)
    values = [getattr(roof, name) for name in Roofline.__dataclass_fields__]
    return _latency(roof, overhead_s), roofline(overhead_s, *values)


def _line(line: Linear, overhead_s: float) -> tuple[ModelLatency, PassCost]:
    return _latency(line, overhead_s), linear(line.alpha_s, line.gamma_s, line.delta_s, overhead_s)


def _latency(form: Linear | Roofline, overhead_s: float) -> ModelLatency:
    return ModelLatency("made", {"made": form}, "made", 1, 0, overhead_s)
