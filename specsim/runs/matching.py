"""Whether what was chosen will do: the acceptance for its pair, the fit of the profile, a budget for its bend."""

from __future__ import annotations

from collections.abc import Iterator

from specsim.config.choices import Choice, Choices
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import is_number
from specsim.latency.fitness import unfit
from specsim.latency.model import Profile
from specsim.world.acceptance import Pair


def pair_note(of: Pair | None, truth: Profile, acceptance: str, profile: str, *, refused: bool) -> str | None:
    """Return a line where the acceptance is of another pair than the run, or names none.

    Parameters
    ----------
    of : the pair of the acceptance. truth : the profile with the run's drafter.
    acceptance, profile : how the run chose them, ``group=choice``.
    refused : whether another target is refused: the acceptance is a recording, and any target was not asked for.

    Raises
    ------
    SpecsimError
        For a recording on another target.
    """
    runs = Pair(truth.target.name, truth.draft.name)
    if of is None:
        return f"{acceptance} names no pair (pair: target, draft): whether it is of {runs} is not checked"
    if refused and not of.has_target(runs):
        raise SpecsimError(
            f"{acceptance}: recorded on {of.target}, but the target of {profile} is {runs.target}; expected a "
            "recording on that target, or any_target=true"
        )
    if of.has_target(runs) and of.has_draft(runs):
        return None
    return (
        f"MISMATCHED PAIR: {acceptance} is of {of}, the run is of {runs}: how often its drafts are right is taken from "
        "another pair"
    )


def fitness_note(profile: Profile, source: str, *, any_fit: bool) -> str | None:
    """Return a line where a profile is not fit for use and was asked for all the same.

    Raises
    ------
    SpecsimError
        When it is not fit for use and was not asked for.
    """
    return _let_stand(unfit(profile), source, "another profile", any_fit=any_fit)


def calibration_note(engine: Choice, *, any_fit: bool) -> str | None:
    """Return the same as `fitness_note` of an engine whose calibration is marked as not fit for use."""
    misfit = engine.values.get("misfit")
    said = None if misfit is None else f"not fit for use: {misfit}"
    return _let_stand(said, str(engine), "another engine", any_fit=any_fit)


def eagle_notes(chosen: Choices, truth: Profile) -> Iterator[str]:
    """Yield a line where EAGLE's head is not the target's, and where its acceptance exceeds that of served heads."""
    low, high = EIGHT_BILLION_BYTES
    if chosen.drafter.name == EAGLE and not low <= truth.target.weights_bytes <= high:
        target = truth.target.name
        yield f"drafter=eagle is the head of an 8B: its pass takes that share of {target}, whose own head takes another"
    acceptance = chosen.acceptance
    if acceptance.name == EAGLE and acceptance.values["categories"]["default"].get("agreement") == EAGLE_AGREEMENT:
        yield (
            "acceptance=eagle is right 80% of the time at every depth, as its paper says; tables of served heads say "
            "60 to 77% of first tokens, and less at each depth"
        )


EAGLE, EAGLE_AGREEMENT = "eagle", 0.8
EIGHT_BILLION_BYTES = 1.2e10, 2.0e10
"""Weights of the targets that `drafter=eagle` is a head of, 16 bits each."""


def spelling_note(scheduler: Choice) -> str | None:
    """Return a line where `scheduler=vllm_spec` is given no draft token: that run has a name of its own."""
    if scheduler.name != "vllm_spec" or scheduler.values.get("num_speculative_tokens") != 0:
        return None
    return "scheduler=vllm_spec without draft tokens drafts nothing: scheduler=vllm is the name of that run"


def batching_notes(engine: Choice, scheduler: Choice) -> tuple[str, ...]:
    """Return a line where an engine does not say how it batches, and where it never ran a scheduler."""
    order, prefill = engine.values.get("batching"), scheduler.values.get("prefill")
    served_by = scheduler.values.get("served_by") or {"mixed": "mixed", "first": "prompts_first"}.get(str(prefill))
    if order is None and scheduler.values.get("batching") == "engine":
        return (f"{engine} does not say how it batches (batching): prompts are mixed with decodes, as in vLLM V1",)
    if order is None or served_by in (None, order):
        return ()
    said = f"{scheduler} {_ORDERS[served_by]}, {engine} {_ORDERS[order]}: no server ran the two together"
    return (said,)


_ORDERS = {"prompts_first": "reads prompts before decodes", "mixed": "mixes prompts with decodes"}


def _let_stand(said: str | None, source: str, expected: str, *, any_fit: bool) -> str | None:
    if said is not None and not any_fit:
        raise SpecsimError(f"{source}: {said}; expected {expected}, or any_fit=true")
    return None if said is None else f"{source}: {said}"


def check_budget(scheduler: Choice) -> None:
    """Refuse a scheduler whose verification budget does not hold a root of everybody it admits (AdaServe: n <= B).

    Raises
    ------
    SpecsimError
        One line that names both values.
    """
    budget, seats = (scheduler.values.get(key) for key in ("verify_tokens", "max_num_seqs"))
    if is_number(budget) and is_number(seats) and seats > budget:
        raise SpecsimError(
            f"{scheduler}: max_num_seqs={seats} exceeds verify_tokens={budget}; expected room for a root each"
        )


def budget_note(scheduler: Choice, truth: Profile, profile: str) -> str | None:
    """Return a line where verifying a whole budget leaves the memory-bound part of the target's pass."""
    budget, bend = scheduler.values.get("verify_tokens"), truth.target.bend_tokens
    if not is_number(budget) or bend is None or budget <= bend:
        return None
    return (
        f"scheduler.verify_tokens={budget} lies past the bend of {profile}, {bend:.4g} tokens: from there on compute "
        "is the slower side, and each further token of a verification costs more"
    )
