"""A profile from its YAML, and whether it claims more than the peaks of its hardware.

A mistake is an error of one line that names the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from specsim.files.checked_mapping import CheckedMapping
from specsim.files.yaml_file import is_path, read_yaml, shipped
from specsim.latency.forms import Block, Form, Linear, Roofline, Staged, Table
from specsim.latency.model import MOST_DEPTH, MOST_MEDIAN, PROFILE_VERSION, ModelLatency, ModelShape, Profile
from specsim.pass_shape import PassShape

__all__ = ["PROFILE_VERSION", "ModelLatency", "Profile", "load_profile", "profile_from_mapping"]

TOP_KEYS = (
    "name",
    "profile_version",
    "description",
    "hardware",
    "gpus",
    "memory_bytes",
    "form",
    "target",
    "draft",
)
TOP_OPTIONS = (
    "pipeline_parallel_size",
    "baseline_s",
    "usable_kv_bytes",
    "usable_kv_bytes_alone",
    "checks",
    "provenance",
    "assumptions",
    "suggests",
)
MODEL_KEYS = ("name", "kv_bytes_per_token", "weights_bytes", "overhead_s", "forms")
MODEL_OPTIONS = ("standard_errors", "valid", "held_out_error", "launch_s", "nonembedding_bytes")
TARGET_OPTIONS = ("max_model_len", *ModelShape._fields)
DRAFT_OPTIONS = ("max_depth", "step_s", "block_tokens", "block_queries", "fed_s")
LINEAR_KEYS = ("alpha_s", "gamma_s", "delta_s")
ROOFLINE_KEYS = ("delta_s", "gamma_s", "compute_delta_s", "compute_s", "alpha_s", "beta_s")
ROOFLINE_OPTIONS = ("single_s", "pair_s", "logit_s")
FEW_TOKENS = ("few_s", "few_logits_s")
TABLE_KEYS = ("batched_tokens", "seconds_at", "floor_s")
TABLE_OPTIONS = ("alpha_s", "beta_s", "logit_s", "request_s")
MOST_BYTES = 10**15


def load_profile(path: str | Path) -> Profile:
    """Return the profile in the file `path`, or the shipped profile of that name, with its own draft model.

    Raises
    ------
    SpecsimError
        When the file cannot be read or a key is wrong.
    """
    file = path if isinstance(path, Path) else Path(path)
    if isinstance(path, str) and not is_path(path):
        file = shipped("conf") / "profile" / f"{path}.yaml"
    return profile_from_mapping(read_yaml(file, "profile file"), str(path))


def profile_from_mapping(mapping: Mapping[Any, Any], source: str) -> Profile:
    """Build a profile from the keys of its file; `source` names the file in errors.

    ``form`` chooses the form of both models. A model with a single form keeps that one.
    """
    top = CheckedMapping(source, "", mapping)
    if mapping.get("profile_version", PROFILE_VERSION) != PROFILE_VERSION:
        top.fail("profile_version", f"{PROFILE_VERSION}, the version that this specsim reads")
    top.only(TOP_KEYS, TOP_OPTIONS)
    target, draft = top.child("target"), top.child("draft")
    wanted = _form_name(top, (_forms(target, TARGET_OPTIONS), _forms(draft, DRAFT_OPTIONS)))
    if "checks" in top.values:
        _check_told(top.child("checks"))
    stages = top.whole("pipeline_parallel_size") if "pipeline_parallel_size" in top.values else 1
    profile = Profile(
        name=top.text("name"),
        version=top.whole("profile_version"),
        description=top.text("description"),
        hardware=top.text("hardware"),
        gpus=top.whole("gpus"),
        memory_bytes=top.whole("memory_bytes", 1, MOST_BYTES),
        pipeline_parallel_size=stages,
        target=_model(target, wanted, stages),
        draft=_model(draft, wanted, stages, drafts=True),
        stated_baseline_s=top.number("baseline_s", above=0) if "baseline_s" in top.values else None,
        stated_usable_kv_bytes=_stated_bytes(top, "usable_kv_bytes"),
        stated_alone_kv_bytes=_stated_bytes(top, "usable_kv_bytes_alone"),
        provenance=_provenance(top),
        assumptions=top.texts("assumptions") if "assumptions" in top.values else (),
    )
    room = max(profile.memory_bytes - profile.target.weights_bytes - profile.draft.weights_bytes, 0)
    if profile.stated_usable_kv_bytes is not None and profile.stated_usable_kv_bytes > room:
        top.fail("usable_kv_bytes", f"at most {room}: memory_bytes less both models' weights_bytes")
    if profile.usable_kv_bytes + profile.draft.weights_bytes <= 0:
        top.fail("memory_bytes", "enough: 0.9 of it must exceed the target's weights_bytes")
    if profile.baseline_s <= 0:
        top.refuse(f"target.forms.{profile.target.form}", "a pass of one token takes no time")
    return profile


def _stated_bytes(top: CheckedMapping, key: str) -> int | None:
    return top.whole(key, 1, MOST_BYTES) if key in top.values else None


def _form_name(top: CheckedMapping, held: tuple[CheckedMapping, CheckedMapping]) -> str:
    """Return the chosen form: at least one model has it, and a model without it has a single form."""
    wanted = top.choice("form", _FORMS)
    names = [tuple(node.values) for node in held]
    if wanted not in names[0] + names[1] or any(wanted not in each and len(each) > 1 for each in names):
        offered = ", ".join(sorted({*names[0], *names[1]}))
        top.refuse("form", f"{wanted!r} is not in this profile; valid: {offered}")
    return wanted


def _forms(node: CheckedMapping, further: tuple[str, ...]) -> CheckedMapping:
    node.only(MODEL_KEYS, (*MODEL_OPTIONS, *further))
    held = node.child("forms", "at least one form", 1)
    held.only((), _FORMS)
    return held


def _model(node: CheckedMapping, wanted: str, stages: int, drafts: bool = False) -> ModelLatency:
    held = node.child("forms")
    forms = {name: _FORMS[name](held.child(name)) for name in held.values}
    form = wanted if wanted in forms else next(iter(forms))
    fitted, block = forms[form], node.whole("block_tokens") if node.given("block_tokens") else 0
    for key, beside in (("block_queries", "block_tokens"), ("fed_s", "block_queries")):
        if node.given(key) and not node.given(beside):
            node.refuse(key, f"given without {beside}; expected both")
    queries = node.whole("block_queries", block) if node.given("block_queries") else 0
    fed_s = node.number("fed_s") if node.given("fed_s") else 0.0
    forms = {name: Block(each, block, queries, fed_s) for name, each in forms.items()} if block else forms
    forms = {name: Staged(each, stages, drafts) for name, each in forms.items()} if stages > 1 else forms
    if "standard_errors" in node.values:
        _check_told(node.child("standard_errors"))
    errors, sizes = _held_out_errors(node), ModelShape._fields
    return ModelLatency(
        name=node.text("name"),
        forms=forms,
        form=form,
        kv_bytes_per_token=node.whole("kv_bytes_per_token", 1, MOST_BYTES),
        weights_bytes=node.whole("weights_bytes", 0, MOST_BYTES),
        overhead_s=node.number("overhead_s"),
        fit_error=errors.get(form, {}),
        misfit=_misfit(errors, form),
        launch_s=node.number("launch_s") if "launch_s" in node.values else None,
        nonembedding_bytes=_nonembedding_bytes(node),
        max_model_len=node.whole("max_model_len", 2) if node.given("max_model_len") else None,
        shape=ModelShape(*map(node.whole, sizes)) if any(map(node.given, sizes)) else None,
        one_pass=block > 0,
        max_depth=block or (node.whole("max_depth") if node.given("max_depth") else MOST_DEPTH),
        step_s=node.number("step_s") if node.given("step_s") else 0.0,
        **_ranges(node, stages, fitted, queries or block or 1),
    )


def _nonembedding_bytes(node: CheckedMapping) -> int | None:
    if "nonembedding_bytes" not in node.values:
        return None
    stated = node.whole("nonembedding_bytes", 1, MOST_BYTES)
    if stated > node.values["weights_bytes"]:
        node.fail("nonembedding_bytes", f"at most weights_bytes, {node.values['weights_bytes']}")
    return stated


def _ranges(node: CheckedMapping, stages: int, form: Form, block: int) -> dict[str, Any]:
    """Return the ranges of a step, which is a pass in each of the stages; a table's rows where none is stated."""
    spans: dict[str, tuple[float, float]] = {}
    if "valid" in node.values:
        valid = node.child("valid")
        valid.only(("context_tokens", "batched_tokens"))
        spans = {name: valid.span(name, "a range [low, high]", least=0, empty=True) for name in valid.values}
    elif isinstance(form, Table):
        spans["batched_tokens"] = form.batched_tokens[0] / block, form.batched_tokens[-1] / block
    return {name.replace("tokens", "range"): (low, stages * high) for name, (low, high) in spans.items()}


def _held_out_errors(node: CheckedMapping) -> dict[str, dict[str, dict[str, float]]]:
    if "held_out_error" not in node.values:
        return {}
    by_form = node.child("held_out_error")
    by_form.only((), _FORMS)
    kinds = {name: by_form.child(name) for name in by_form.values}
    return {
        name: {kind: {each: of.child(kind).number(each) for each in of.child(kind).values} for kind in of.values}
        for name, of in kinds.items()
    }


def _check_told(node: CheckedMapping) -> None:
    """Refuse what is not finite among numbers that tell of a profile, and that no run reads."""
    for name, value in node.values.items():
        if isinstance(value, Mapping):
            _check_told(node.child(name))
        elif isinstance(value, float):
            node.number(name, least=-inf)


def _misfit(by_form: Mapping[str, Mapping[str, Mapping[str, float]]], form: str) -> str | None:
    """Return what is wrong with a model's fit, None if nothing is.

    The best of its forms counts, and in it the kind of pass with the largest median; the form in use is told.

    Parameters
    ----------
    by_form : held-out relative errors by form, kind of pass, and statistic.
    """
    worst = {
        name: max((error.get("median", 0.0), kind) for kind, error in kinds.items())
        for name, kinds in by_form.items()
        if kinds
    }
    best = min(worst.values(), default=(0.0, ""))
    if best[0] <= MOST_MEDIAN:
        return None
    median, kind = worst.get(form, best)
    return f"the median held-out error of {kind} is {100 * median:.1f}%"


def _provenance(top: CheckedMapping) -> tuple[Mapping[str, str], ...]:
    entries = top.items("provenance", "mappings", 0) if "provenance" in top.values else ()
    return tuple({str(name): each.text(name) for name in each.values} for each in entries)


def _linear(node: CheckedMapping) -> Linear:
    node.only(LINEAR_KEYS)
    return Linear(**{name: node.number(name) for name in LINEAR_KEYS})


def _roofline(node: CheckedMapping) -> Roofline:
    node.only(ROOFLINE_KEYS, ("tile_tokens", *ROOFLINE_OPTIONS, *FEW_TOKENS))
    tile = node.whole("tile_tokens") if "tile_tokens" in node.values else 1
    given = [*ROOFLINE_KEYS, *(name for name in ROOFLINE_OPTIONS if name in node.values)]
    values: dict[str, Any] = {name: node.number(name) for name in given}
    form = Roofline(**values, tile_tokens=tile)
    if form.single_s and form.shortest_s <= 0:
        node.fail("single_s", "less than a pass of one token takes without it")
    offsets: dict[str, Any] = {name: node.numbers(name, 1, least=-inf) for name in FEW_TOKENS if name in node.values}
    if offsets:
        form = Roofline(**values, tile_tokens=tile, **offsets)
        if form.shortest_s <= 0:
            node.fail(min(offsets, key=lambda name: min(offsets[name])), "seconds that leave some to every pass")
    return form


def _table(node: CheckedMapping) -> Table:
    node.only(TABLE_KEYS, TABLE_OPTIONS)
    tokens, seconds = node.numbers("batched_tokens", 2), node.numbers("seconds_at", 2)
    if any(after <= before for before, after in pairwise(tokens)):
        node.fail("batched_tokens", "strictly rising")
    if len(seconds) != len(tokens):
        node.fail("seconds_at", f"{len(tokens)} numbers, one for each of batched_tokens")
    if any(after < before for before, after in pairwise(seconds)):
        node.fail("seconds_at", "rising: a larger pass takes no less time")
    further = {name: node.number(name) for name in TABLE_OPTIONS if name in node.values}
    return Table(tokens, seconds, node.number("floor_s"), **further)


_FORMS: dict[str, Callable[[CheckedMapping], Form]] = {"roofline": _roofline, "linear": _linear, "table": _table}


class Peak(NamedTuple):
    """Of one GPU: bytes a second from its memory, and 16-bit floating-point operations a second, dense."""

    bytes_per_s: float
    flop_per_s: float


PEAKS = {
    "A100-SXM4-40GB": Peak(1.555e12, 312e12),
    "A100-SXM4-80GB": Peak(2.039e12, 312e12),
    "A100 80GB PCIe": Peak(1.935e12, 312e12),
    "H100-SXM5-80GB": Peak(3.35e12, 989e12),
    "H100 80GB HBM3": Peak(3.35e12, 989e12),
    "H100 PCIe": Peak(2.0e12, 756e12),
    "H200": Peak(4.8e12, 989e12),
    "NVIDIA B200": Peak(8.0e12, 2250e12),
    "L40S": Peak(0.864e12, 362e12),
}
"""By a part of ``hardware``, CUDA's name of the device: NVIDIA's data sheets of A100, H100, H200, HGX B200 and L40S."""
LEAST_NONEMBEDDING_SHARE = 0.5
"""Of the weights, where a profile does not state it: only toys have fewer."""
TERA = 1e12


class Implied(NamedTuple):
    """A coefficient, the rate that it implies and the peak of the GPUs together, both in `unit` (TB/s or TFLOP/s)."""

    coefficient: str
    rate: float
    peak: float
    unit: str


def peak_of(hardware: str) -> Peak | None:
    """Return the peaks of a GPU, None where they are not known here."""
    return next((peak for name, peak in PEAKS.items() if name.lower() in hardware.lower()), None)


def peak_notes(profile: Profile, source: str) -> tuple[str, ...]:
    """Return a line for each coefficient in use that implies more than the profile's GPUs can do together."""
    peak = peak_of(profile.hardware)
    if peak is None:
        return ()
    return tuple(
        f"{source}: {role}.forms.{model.form}.{each.coefficient} implies {each.rate:,.4g} {each.unit}; the peak of "
        f"{profile.gpus} x {profile.hardware} is {each.peak:,.4g}: such passes are too short"
        for role, model in (("target", profile.target), ("draft", profile.draft))
        for each in implied(model, peak, profile.gpus)
        if each.rate > each.peak
    )


def implied(model: ModelLatency, peak: Peak, gpus: int) -> Iterator[Implied]:
    """Yield what the coefficients in use imply: reading a context token's cache, reading the weights, multiplying them.

    A 16-bit weight is two bytes and two operations a batched token, an 8-bit one half the bytes at twice the peak: in
    units of the 16-bit peak both make one operation a byte.
    """
    read, computed = gpus * peak.bytes_per_s / TERA, gpus * peak.flop_per_s / TERA
    stated = model.nonembedding_bytes
    weights = LEAST_NONEMBEDDING_SHARE * model.weights_bytes if stated is None else stated
    amounts = {"cache": model.kv_bytes_per_token, "weights": weights, "products": weights}
    limits = {"cache": (read, "TB/s"), "weights": (read, "TB/s"), "products": (computed, "TFLOP/s")}
    for kind, (coefficient, seconds) in _costs(model.chosen).items():
        if amounts[kind]:
            yield Implied(coefficient, amounts[kind] / seconds / TERA if seconds else inf, *limits[kind])


def _costs(form: Form) -> dict[str, tuple[str, float]]:
    """Return coefficient and seconds: cache of a context token, weights of a pass of one, products of a token more."""
    if isinstance(form, Block | Staged):
        return _costs(form.form)
    one = form.seconds(PassShape(0, 1, 0, 0, 0, 1))
    if isinstance(form, Linear):
        return {"cache": ("alpha_s", form.alpha_s), "weights": ("delta_s", one), "products": ("gamma_s", form.gamma_s)}
    if isinstance(form, Roofline):
        context_s = max(form.alpha_s, form.beta_s) + form.pair_s
        token_s = max(form.compute_s, form.gamma_s)
        return {"cache": ("alpha_s", context_s), "weights": ("delta_s", one), "products": ("compute_s", token_s)}
    (low, high), (before, after) = form.batched_tokens[-2:], form.seconds_at[-2:]
    costs = {"weights": ("floor_s", one), "products": ("seconds_at", (after - before) / (high - low))}
    context_s = max(form.alpha_s, form.beta_s)
    return {"cache": ("alpha_s", context_s), **costs} if context_s else costs
