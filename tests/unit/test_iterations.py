"""Iterations seen from inside: what is told of a verification agrees with what the run recorded of it."""

from dataclasses import replace

import numpy as np
import pytest

from specsim import iterations, load_run, simulate
from specsim.figures.style import PALETTE
from tests.laws.subjects import factory_of
from tests.made import refusal

SMALL = {"trace": "poisson", "requests": 8, "rps": 8, "passes": True}
TIGHT = {"scheduler__verify_tokens": 24, "scheduler__max_num_seqs": 8, "slo_scale": 0.8}


def verifications(run):
    return run.passes.query("kind == 1").reset_index(drop=True)


@pytest.fixture(scope="module")
def run():
    return simulate("adaserve", **SMALL, **TIGHT)


@pytest.fixture(scope="module")
def steps(run):
    return iterations(run, range(run.metrics["specsim"]["iterations"]))


def drafted(step):
    return step.nodes[step.nodes["depth"] > 0]


def agrees(run, steps):
    for step, told in zip(steps, verifications(run).itertuples(), strict=True):
        nodes = drafted(step)
        assert nodes["verified"].sum() == told.draft_tokens
        assert step.requests["emitted_tokens"].sum() == told.emitted_tokens
        assert len(step.requests) == told.requests
        got = nodes[nodes["accepted"]].groupby("request").size()
        expected = step.requests.set_index("request")["accepted_tokens"]
        assert got.to_dict() == expected[expected > 0].to_dict()


def test_what_is_seen_is_what_was_recorded(run, steps):
    agrees(run, steps)
    assert any((~drafted(step)["verified"]).any() for step in steps)
    other = simulate("adaserve_oracle", **SMALL, replicas=2)
    agrees(other, iterations(other, range(other.metrics["specsim"]["iterations"])))


def test_nodes_are_trees(steps):
    for step in steps:
        nodes = step.nodes
        above = nodes.loc[drafted(step)["parent"]].set_axis(drafted(step).index)
        assert (above["request"] == drafted(step)["request"]).all()
        assert (above["depth"] == drafted(step)["depth"] - 1).all()
        path = above["path_probability"] * drafted(step)["probability"]
        np.testing.assert_allclose(drafted(step)["path_probability"], path)
        accepted = drafted(step)[drafted(step)["accepted"]]
        assert (above["accepted"] | (above["depth"] == 0))[accepted.index].all()
        assert accepted["verified"].all()
        assert accepted["right"].all()


def test_requests_say_where_they_stand(run, steps):
    """Time and tokens before the last verification of a request come to its own AdaServe measure."""
    table = run.requests.set_index("request_id")
    for step, told in zip(steps, verifications(run).itertuples(), strict=True):
        for row in step.requests[step.requests["decoding"]].itertuples():
            if row.decoded_tokens + row.emitted_tokens + 1 == table.loc[row.request, "output_tokens"]:
                rest_s = told.start_s + told.seconds - step.start_s
                decode_s = (row.decoding_s + rest_s) / (row.decoded_tokens + row.emitted_tokens)
                assert decode_s == pytest.approx(table.loc[row.request, "decode_tpot_s"], rel=1e-9)


def test_the_first_selection_is_told_from_the_second(run, steps):
    both = [step for step in steps if drafted(step)["for_slo"].any() and not drafted(step)["for_slo"].all()]
    assert both
    for step in both:
        nodes = drafted(step)
        assert nodes[nodes["for_slo"]]["verified"].all()
        for _, tree in nodes.groupby("request"):
            first, rest = tree[tree["for_slo"]], tree[~tree["for_slo"]]
            if len(first) and len(rest):
                assert first["path_probability"].min() >= rest["path_probability"].max()
    assert all(drafted(step)["for_slo"].all() for step in _of("adaserve_slo_only"))
    assert not any(drafted(step)["for_slo"].any() for step in _of("global_greedy"))


def _of(scheduler):
    """Return the verified tokens' iterations of a scheduler whose selections are both, or neither, for objectives."""
    made = simulate(scheduler, **SMALL, **TIGHT)
    found = iterations(made, range(0, made.metrics["specsim"]["iterations"], 7))
    chosen = [replace(step, nodes=step.nodes[step.nodes["verified"]]) for step in found]
    held = [step for step in chosen if len(drafted(step))]
    assert held
    return held


def test_a_stored_run_is_seen_alike(run, steps, tmp_path):
    simulate("adaserve", **SMALL, **TIGHT, out=tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    (seen,) = iterations(load_run(tmp_path / "run"), [40])
    assert seen.nodes.equals(steps[40].nodes)
    assert seen.requests.equals(steps[40].requests)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_seen_is_refused(run, steps):
    later = replace(run._table.done, finish_s=run._table.done.finish_s + 1e-9)
    differing = replace(run, _table=replace(run._table, done=later))
    assert "the run comes out differently" in refusal(iterations, differing, [0])
    of_objects = simulate(factory_of("continuous"), **SMALL)
    assert "scheduler was given as an object" in refusal(iterations, of_objects, [0])
    for numbers, said in (([-1], "the run has those from 0 to"), ([10**6], "1000000"), ("1", "a list")):
        assert said in refusal(iterations, run, numbers)
    assert "request 999: does not decode in iteration 0" in refusal(steps[0].draw, [999])
    assert "has no request that decodes" in refusal(steps[0].draw)


def test_the_trees_are_drawn(steps):
    step = max(steps, key=lambda each: drafted(each)["for_slo"].sum())
    figure = step.draw()
    decoding = step.requests[step.requests["decoding"]]
    assert len(figure.axes) == len(decoding)
    for axes, row in zip(figure.axes, decoding.itertuples(), strict=True):
        tree = step.nodes[step.nodes["request"] == row.request]
        marks = [line for line in axes.lines if line.get_linestyle() == "None"]
        assert len(marks) == len(tree)
        assert len([line for line in marks if line.get_markerfacecolor() == PALETTE[0]]) == tree["for_slo"].sum()
        assert f"Request {row.request}, {row.slo_class}" in axes.get_title(loc="left")
        assert len([line for line in axes.lines if line.get_linewidth() == 2.0]) == row.accepted_tokens
    assert len(step.draw(decoding["request"].tolist()[:1]).axes) == 1
