"""Settings that cannot act together or change nothing, and notes on the choices of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from specsim.acceptance.loading import Pair, same_model
from specsim.acceptance.recorded import PROBABLE, RecordedTexts
from specsim.acceptance.trace import AcceptanceTrace, Layout, Pools, Stretches
from specsim.cluster.clients import Turns
from specsim.cluster.routing import Router, router_factory
from specsim.config.groups import Choice, Choices, shipped_names
from specsim.config.schema import Settings, Shed
from specsim.core.request import Bools, Floats, Ints, Prefixes, Requests
from specsim.errors import SpecsimError, represented
from specsim.files.yaml_file import is_path, peek_yaml, shipped
from specsim.latency.model import Profile
from specsim.latency.profile import peak_notes
from specsim.metrics.recorder import Record
from specsim.metrics.requests import VERIFY_PASS, RunTotals
from specsim.metrics.summary import peak
from specsim.metrics.sweep_table import EAGER, HARDLY, UNDRAFTED
from specsim.pass_shape import PassShape
from specsim.registry import asked
from specsim.runs.hardware import Fleet
from specsim.schedulers.loading import MAKERS, SchedulerFactory, Serving
from specsim.schedulers.parts.batching import RESERVES
from specsim.server.admission import AdmissionControl
from specsim.simulation import Simulation
from specsim.workload.sessions import prefixes_of_turns
from specsim.workload.trace import Trace

POOLED, WITHIN = "specsim.cluster.routers.Dedicated", "within"
"""A router, and its argument that is a router itself; a shipped one may be named there, as in `router=`."""


def router(
    chosen: Choice, plugins: Mapping[str, ModuleType], classes: Sequence[str], pools: Sequence[int]
) -> Callable[[], Router]:
    """Return what makes the router of each of the `pools`, by their sizes, for requests of these `classes`.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, or replicas cannot be shared out.
    """
    named, mapping = str(chosen), dict(chosen.values)
    if mapping.get("_target_") == POOLED and isinstance(within := mapping.get(WITHIN), str):
        mapping[WITHIN] = _of_name(within, named)
    return router_factory(mapping, named, plugins, classes, pools)


def turns(trace: Trace, delay_s: Floats) -> Turns | None:
    """Return which requests follow an answer, `delay_s` (N,) after it; None where all arrive by themselves."""
    waits = np.flatnonzero(trace.waits)
    if not len(waits):
        return None
    then: Ints = np.full(len(trace), -1, dtype=np.int64)
    then[trace.before[waits]] = waits
    return Turns(then, delay_s)


def routing_notes(router: Router, source: str, trace: Trace, pools: Sequence[int]) -> Iterator[str]:
    """Yield lines where a router deals by sessions that the trace does not name, or by none though hits are recorded.

    `pools` are the sizes of the pools that are routed in, that which reads prompts first.
    """
    by_session = getattr(router, "by_session", False)
    if by_session and trace.session is None:
        yield f"{source}: trace {trace.source.name!r} names no sessions: each request is one of its own"
    if pools[0] > 1 and not by_session and trace.cached_tokens is not None and trace.cached_tokens.any():
        yield (
            f"{source}: a recorded hit (cached_tokens) is taken on whichever replica serves, so no router "
            "loses one: router=affinity keeps sessions together, turns with prefix_caching=true show routers apart"
        )


def _of_name(name: str, named: str) -> dict[str, Any]:
    """Return what a shipped router's file says of its class."""
    known = shipped_names("router")
    if name not in known:
        raise SpecsimError(f"{named}: {WITHIN}: {represented(name)}: expected one of {', '.join(sorted(known))}")
    file = shipped("conf") / "router" / f"{name}.yaml"
    return {key: value for key, value in peek_yaml(file).items() if key != "description"}


def hashes_note(trace: Trace, settings: Settings) -> str | None:
    """Return a line where a trace tells which prompts begin alike, and no server keeps their blocks."""
    if settings.prefix_caching or trace.prefixes is None or trace.cached_tokens is not None:
        return None
    engines = "vLLM V1, SGLang and TensorRT-LLM do so by default: prefix_caching=true"
    return f"trace {trace.source.name!r} has hash_ids, but no prompt's blocks are kept for the next ones; {engines}"


def prefixes(settings: Settings, trace: Trace) -> Prefixes:
    """Return the hashes of all prompts, whose blocks are kept.

    Raises
    ------
    SpecsimError
        One line when the trace tells no hashes or tells what is cached, or its blocks are no whole blocks of the cache.
    """
    name, found, block_tokens = trace.source.name, trace.prefixes, settings.block_tokens
    if trace.cached_tokens is not None:
        raise SpecsimError(f"prefix_caching=true: trace {name!r} tells cached_tokens itself; expected false")
    if found is None and trace.delay_s is not None:
        found = prefixes_of_turns(trace, block_tokens)
    if found is None:
        shipped = trace.source.origin in ("surrogate", "toy")
        who = f"the shipped {trace.source.origin} of trace {name!r}" if shipped else f"trace {name!r}"
        cure = "expected a list a request, by blocks of one size, not resampled"
        if trace.session is not None:
            cure += "; or trace.turns=whole, if each turn of a session_id sends all before it (docs/closed-loops.md)"
        raise SpecsimError(f"prefix_caching=true: {who} has no hash_ids that can be used; {cure}")
    if settings.shed.ttft:
        raise SpecsimError("prefix_caching=true: not with shed.ttft; expected one of them")
    if found.block_tokens % block_tokens:
        said = f"hash_ids of {found.block_tokens} tokens are no whole blocks of block_tokens={block_tokens}"
        raise SpecsimError(f"prefix_caching=true: {said}")
    return found


OURS = (Pools, RecordedTexts, Stretches)


def guarded(acceptance_trace: AcceptanceTrace, requests: int, source: str) -> AcceptanceTrace:
    """Return the trace of `requests` requests with a layout whose answers are checked, unless the layout is of specsim.

    Raises
    ------
    SpecsimError
        When an array is not what `specsim.acceptance.trace.AcceptanceTrace` says: one line that names it.
    """
    confidence, rank, layout = acceptance_trace.confidence, acceptance_trace.rank, acceptance_trace.layout
    truth, by_request = acceptance_trace.truth, dict[str, tuple[Any, Any]](keys=(acceptance_trace.keys, np.uint64))
    if isinstance(layout, Pools):
        by_request["its layout's start"] = layout.start, np.int64
        by_request["its layout's off_start"] = layout.off_start, np.int64
    _check_array(source, "confidence", confidence, np.float64, 2)
    _check_array(source, "target_probability", truth, np.float64, 2)
    _check_array(source, "rank", rank, np.int64, 1)
    rows, width = confidence.shape
    for name, (array, kind) in by_request.items():
        _check_array(source, name, array, kind, 1)
        if len(array) != requests:
            raise SpecsimError(f"{source}: {name} is of {len(array)} requests; expected {requests}")
    if truth.shape != confidence.shape:
        raise SpecsimError(f"{source}: target_probability is {truth.shape}; expected {confidence.shape}, as confidence")
    if len(rank) != rows or not rows or not width:
        raise SpecsimError(
            f"{source}: its acceptance trace has {rows} rows of {width} confidences and {len(rank)} ranks"
        )
    for wrong, what in (
        (~((confidence >= 0) & (confidence <= 1)).all(axis=1), "a confidence that is no probability"),
        (~((truth >= 0) & (truth <= PROBABLE)).all(axis=1), "a target_probability that is no probability"),
        (confidence.sum(axis=1) > PROBABLE, "confidences that add up to more than 1"),
        ((np.diff(confidence, axis=1) > 0).any(axis=1), "confidences that rise"),
        ((rank < 0) | (rank > width), f"a rank that is not between 0 and {width}"),
    ):
        if wrong.any():
            raise SpecsimError(f"{source}: row {int(wrong.argmax())} of its acceptance trace has {what}")
    ours = isinstance(layout, OURS)
    return acceptance_trace if ours else replace(acceptance_trace, layout=Guarded(source, layout, rows))


@dataclass(frozen=True, slots=True)
class Guarded:
    """A layout of somebody's own; `rows_there` is the number of rows of its acceptance trace."""

    source: str
    inner: Layout
    rows_there: int

    @property
    def depths(self) -> int:
        """Draft positions with an acceptance of their own."""
        return int(getattr(self.inner, "depths", 1))

    def rows(self, requests: Ints, keys: Any, hashed: Any, on: Bools, depth: Ints) -> Ints:
        """Return the row that each key falls on, (n,)."""
        found: Ints = asked(self.source, self.inner.rows, np.ndarray, requests, keys, hashed, on, depth)
        self._check("rows", found)
        if found.shape != requests.shape:
            raise SpecsimError(f"{self.source}: its layout's rows are {found.shape}; expected {requests.shape}")
        return found

    def text_rows(self, requests: Ints, depth: int = 0) -> Ints:
        """Return the rows that the texts of these requests are made of at a draft position, each once."""
        found: Ints = asked(self.source, self.inner.text_rows, np.ndarray, requests, depth)
        self._check("text_rows", found)
        return found

    def _check(self, name: str, found: Ints) -> None:
        _check_array(self.source, f"its layout's {name}", found, np.int64, 1)
        if len(found) and not (found.min() >= 0 and found.max() < self.rows_there):
            raise SpecsimError(f"{self.source}: its layout's {name} are not between 0 and {self.rows_there - 1}")


def _check_array(source: str, name: str, found: Any, kind: Any, dimensions: int) -> None:
    if not isinstance(found, np.ndarray) or found.dtype != kind or found.ndim != dimensions:
        what = f"{found.shape} of {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__
        raise SpecsimError(f"{source}: {name}: {what}; expected an array of {np.dtype(kind)}, {dimensions}-dimensional")


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
    on_target = same_model(of.target, runs.target)
    if refused and not on_target:
        raise SpecsimError(
            f"{acceptance}: recorded on {of.target}, but the target of {profile} is {runs.target}; expected a "
            "recording on that target, rates (acceptance=0.5), or any_fit=true"
        )
    if on_target and same_model(of.draft, runs.draft):
        return None
    return (
        f"MISMATCHED PAIR: {acceptance} is of {of}, the run is of {runs}: how often its drafts are right is taken from "
        "another pair"
    )


LONG_PROMPTS = 4096
"""Mean prompt tokens from which on a head's acceptance of short texts says too much."""


def context_note(of: Pair | None, trace: Trace, acceptance: Choice) -> str | None:
    """Return a line where prompts are longer than the texts that a head's acceptance that ships is of."""
    mean = float(trace.prompt_tokens.mean())
    if of is None or not of.draft.endswith("head") or is_path(acceptance.name) or mean <= LONG_PROMPTS:
        return None
    return (
        f"{acceptance.brought} is of short texts, and prompts have {mean:,.0f} tokens in the mean: heads are right "
        f"less often behind {LONG_PROMPTS:,} tokens and more (docs/acceptance.md)"
    )


def misfit_notes(chosen: Choices, served_on: Fleet, *, any_fit: bool) -> list[str]:
    """Return a line for each profile, and for the engine, that is not fit for use and was asked for all the same.

    Raises
    ------
    SpecsimError
        When one is not fit for use and was not asked for.
    """
    told = [(named, "profile", each.truth.unfit) for named, each in served_on.by_name.values()]
    misfit = served_on.first.engine.misfit
    told.append((str(chosen.engine), "engine", misfit and f"not fit for use: {misfit}"))
    wrong = [(f"{named}: {said}", group) for named, group, said in told if said is not None]
    if wrong and not any_fit:
        said, group = wrong[0]
        raise SpecsimError(f"{said}; expected another {group}, or any_fit=true")
    return [said for said, _ in wrong]


def batching_notes(chosen: Choices, order: str | None, serving: Serving) -> tuple[str, ...]:
    """Return a line where an engine does not say how it batches, its `order`, and where it never ran a scheduler."""
    engine, scheduler = chosen.engine, chosen.scheduler
    if order is None and serving.as_engine:
        return (f"{engine} does not say how it batches (batching): prompts are mixed with decodes, as in vLLM V1",)
    made_by = Path(engine.name).stem.partition("_")[0]
    if serving.maker is not None and made_by in MAKERS and made_by != serving.maker:
        return (f"{scheduler} is {MAKERS[serving.maker][0]}'s, {engine} is not: no server ran the two together",)
    if order is None or serving.order in (None, order):
        return ()
    its = "is of an engine that " if serving.as_engine else ""
    return (f"{scheduler} {its}{_ORDERS[serving.order]}, {engine} {_ORDERS[order]}: no server ran the two together",)


KERNELS = {"vLLM": "vllm", "SGLang": "sglang", "TRT-LLM": "trtllm"}
"""The engines of `MAKERS` as a profile's provenance names them."""


def kernels_note(engine: Choice, truth: Profile, profile: str) -> str | None:
    """Return a line where a profile is made of the kernels of another engine than the run's."""
    versions = truth.provenance[0].get("versions", "") if truth.provenance else ""
    made_by, of = Path(engine.name).stem.partition("_")[0], KERNELS.get(versions.partition(" ")[0])
    if of is None or made_by not in MAKERS or made_by == of:
        return None
    return f"{profile} is made of {MAKERS[of][0]}'s kernels, {engine} is of another: no server has both"


_ORDERS = {"prompts_first": "reads prompts before decodes", "mixed": "mixes prompts with decodes"}


def budget_note(budget: float | None, truth: Profile, profile: str) -> str | None:
    """Return a line where verifying a whole budget leaves the memory-bound part of the target's pass."""
    bend = truth.target.bend_tokens
    if budget is None or bend is None or budget <= bend:
        return None
    return (
        f"scheduler.verify_tokens={budget} lies past the bend of {profile}, {bend:.4g} tokens: from there on compute "
        "is the slower side, and each further token of a verification costs more"
    )


def choice_notes(
    chosen: Choices, served_on: Fleet, scheduler: SchedulerFactory, misfits: Sequence[str]
) -> Iterator[str | None]:
    """Yield the lines, or None; `misfits` are those of profiles and engines that are not fit for use."""
    for named, each in served_on.by_name.values():
        yield from peak_notes(each.truth, named)
    yield from misfits
    yield chosen.suggestion_note
    yield from batching_notes(chosen, served_on.first.engine.batching, scheduler.serving)
    for named, each in served_on.by_name.values():
        yield kernels_note(chosen.engine, each.truth, named)
        yield budget_note(scheduler.serving.verify_tokens, each.truth, named)


RARELY = 0.1
"""Share of decoding steps below which a scheduler hardly drafts."""


def hardly_drafts(scheduler: str, rows: Mapping[str, Any], iterations: int, simulation: Simulation) -> tuple[str, ...]:
    """Return a line where few of the decoding steps of `rows`, of a run of `iterations`, had a draft token.

    It compares the strictest TPOT objective with a step of one draft a request at the mean batch and context.
    """
    steps, drafted = int(rows["verifications"].sum()), int(rows["speculations"].sum())
    if not steps or drafted >= RARELY * steps:
        return ()
    said = f"{HARDLY}: {scheduler} drafted in {drafted / steps:.0%} of its decoding steps"
    batch = max(round(steps / iterations), 1)
    context = np.average(rows["prompt_tokens"] + rows["output_tokens"] / 2, weights=rows["verifications"])
    cached, one = np.full(batch, round(context)), np.ones(batch, dtype=np.int64)
    cost_model, objectives_s = simulation.cost_model, simulation.requests.tpot_slo_s
    step_s = cost_model.draft.seconds(PassShape.of(cached, one)) + cost_model.target.seconds(
        PassShape.of(cached, one, one)
    )
    strictest_s = float(np.fmin.reduce(objectives_s, initial=np.inf))
    if np.isinf(strictest_s):
        return (said,)
    said += f": a step with one draft for each of {batch} requests, its mean batch, takes {1000 * step_s:.1f} ms"
    fits = " without prompts beside it and with nothing for the drafter to catch up with" * (step_s <= strictest_s)
    return (f"{said}{fits}, the strictest TPOT objective is {1000 * strictest_s:.1f} ms",)


def engine_notes(simulation: Simulation, rows: Mapping[str, Any], totals: RunTotals, eager_s: float) -> Iterator[str]:
    """Yield a line for each constant of the engine, known from one server alone, that takes much of the passes' time.

    `eager_s` are those of a `Record`.
    """
    busy_s = totals.prefill_s + totals.draft_s + totals.verify_s
    targets: list[Any] = [simulation.hardware_of(each).truth.target for each in range(simulation.replicas)]
    if eager_s > RARELY * busy_s:
        target = next(each for each in targets if getattr(each, "eager_above", np.inf) < np.inf)
        yield (
            f"{EAGER}: {eager_s / busy_s:.0%} of the passes' time is of decodes above the {target.eager_above:,} "
            f"captured tokens (engine.graph_most); their kernels take {target.eager_factor:g} times as long "
            "(engine.eager_factor, measured on one model: docs/engines.md), which a larger capture size removes"
        )
    # Only a table drafts for a whole step or for none of it: elsewhere a row without drafts may stand beside others.
    by_table = getattr(getattr(simulation.scheduler, "example", None), "by_table", False)
    request_s = getattr(targets[0], "undrafted_request_s", 0.0) if by_table else 0.0
    undrafted = rows["verifications"] - rows["speculations"]
    if (taken_s := request_s * int(undrafted.sum())) > RARELY * busy_s:
        yield (
            f"{UNDRAFTED}: about {taken_s / busy_s:.0%} of the passes' time is engine.undrafted_request_s, "
            f"{1e6 * request_s:g} us a request in a step without drafts: fitted to one server, tested on nothing "
            "(docs/engines.md)"
        )


def slots_note(slots: int, undrafted: int | None, rows: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line where all batch slots (`undrafted` without drafts) were taken, and another of `rows` was there."""
    more = "" if undrafted is None else f"; {undrafted:,} without drafts: engine.max_num_seqs makes both the same"
    left_s = np.fmax(rows["finish_s"], rows["cancelled_s"]) if "cancelled_s" in rows else rows["finish_s"]
    for its in (~np.isnan(left_s) & (rows["replica"] == each) for each in np.unique(rows["replica"])):
        begun, there_s = its & ~np.isnan(rows["first_token_s"]), rows["arrival_s"]
        if "split.arrived_s" in rows:
            there_s = np.fmax(there_s, rows["split.arrived_s"])
        if peak(rows["first_token_s"][begun], left_s[begun]) == slots < peak(there_s[its], left_s[its]):
            return (f"requests waited while all {slots} batch slots of a replica (max_num_seqs{more}) were taken",)
    return ()


def first_wave(clients: int | None, rows: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line where most misses of a closed loop are of the requests with which all clients begin at once."""
    missed, arrival_s = ~rows["slo_ok"], rows["arrival_s"]
    first = int(np.count_nonzero(missed & (arrival_s == arrival_s.min())))
    if (clients or 0) > 1 and 2 * first > missed.sum():
        told = f"{first} of {missed.sum()} misses are of the first requests of the {clients} clients"
        yield f"{told}, who all begin at once; in more requests (requests=, a longer trace) they weigh less"


def beyond(simulation: Simulation, record: Record) -> Iterator[str]:
    """Yield a line where passes lie outside the range of their model, with the counts that are above it."""
    outside, passes = record.totals.out_of_range_passes, record.totals.iterations + record.totals.draft_passes
    if not outside:
        return
    found: dict[tuple[str, float], float] = {}
    for (replica, kind), counts in record.beyond_range.items():
        truth = simulation.hardware_of(replica).truth
        model, who = (truth.target, "the target") if kind == VERIFY_PASS else (truth.draft, "the drafter")
        for name, most in zip(("context", "batched"), counts, strict=True):
            bound = getattr(model, f"{name}_range", (0, np.inf))[1]
            if most > bound:
                key = f"{name} tokens in a pass of {who}", bound
                found[key] = max(most, found.get(key, 0))
    said = [f"up to {most:,.0f} {what}, measured to {bound:,.0f}" for (what, bound), most in found.items()]
    told = f"extrapolated: {outside} of {passes} passes lie outside the range the profile was fitted on"
    yield f"{told}: {'; '.join(said)}" if said else told


def cache_note(simulation: Simulation, cache_bytes: Sequence[int], rows: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line where the cache of a replica, which held so many bytes at most, had no room for more of `rows`.

    It had none if another request of the mean prompt did not fit with what is reserved for it, and more were there at a
    time than fit. Where all that may follow is reserved, the latter is enough.
    """
    reserves = getattr(getattr(simulation.scheduler, "serving", None), "reserves", "prompt")
    share, most = RESERVES[reserves]
    for each, (its, since_s, until_s, pool) in enumerate(_visits(simulation, rows)):
        memory = simulation.hardware_of(each).memory
        if not its.any():
            continue
        prompt, alone = rows["prompt_tokens"][its].mean(), pool == PREFILL
        ahead = 0.0 if alone or not share else np.minimum(simulation.requests.max_tokens[its], most).mean()
        grown = 0.0 if alone else rows["output_tokens"][its].mean() / 2
        whole = share == 1 and not alone
        tokens = int(prompt + (ahead if whole else grown))
        both = simulation.hardware_of(each).truth.draft.cached and rows["draft_tokens"][its].any()
        asked = (int(prompt + share * ahead), int(prompt + ahead), tokens)
        bytes_each, newcomer, of_mean = (int(memory.bytes_of(n, both * n)) for n in asked)
        full = cache_bytes[each] > memory.capacity_bytes - newcomer or whole
        if full and peak(since_s[its], until_s[its]) * bytes_each > memory.capacity_bytes:
            taken = min(cache_bytes[each] / memory.capacity_bytes, 1.0)
            held = memory.capacity_bytes // max(of_mean, 1)
            why = f" or reserved (engine.reserves={reserves})" if share and not alone else ""
            return (
                f"requests waited while the KV cache of a {pool}replica was full{why}: {taken:.0%} of it was taken, it "
                f"holds {held:,} requests of {tokens:,} tokens, their mean{' with max_tokens' if whole else ''}"
                + ("; shared prefixes take less" if simulation.prefixes is not None else ""),
            )
    return ()


PREFILL, DECODE = "prefill ", "decode "


def _visits(simulation: Simulation, rows: Mapping[str, Any]) -> Iterator[tuple[Bools, Floats, Floats, str]]:
    """Yield for each replica which requests had begun there, since when and until when each was there, and its pool."""
    left_s = np.fmax(rows["finish_s"], rows["cancelled_s"]) if "cancelled_s" in rows else rows["finish_s"]
    first_s, split = rows["first_token_s"], simulation.split
    for replica in range(simulation.replicas):
        if split is not None and replica < split.prefill:
            read_s = np.fmin(first_s, rows["split.arrived_s"] - rows["split.moving_s"])
            here = ~np.isnan(read_s) & (rows["split.prefill_replica"] == replica)
            yield here, rows["arrival_s"], read_s, PREFILL
        else:
            since_s = np.where(np.isnan(first_s), np.nan, rows["arrival_s"])
            since_s = since_s if split is None else rows["split.arrived_s"]
            here = ~np.isnan(since_s + left_s) & (rows["replica"] == replica)
            yield here, since_s, left_s, "" if split is None else DECODE


def admission_control(shed: Shed, clients: int | None, requests: Requests) -> AdmissionControl:
    """Return which requests are refused at their arrival; `clients` are those of a closed loop.

    Raises
    ------
    SpecsimError
        One line when clients of a closed loop would send at once what is refused, or no request has
        the objective.
    """
    if clients is not None:
        said = f"shed and concurrency={clients}: a client sends its next request when one is refused"
        raise SpecsimError(f"{said}; expected one of them")
    if shed.ttft and bool(np.isnan(requests.ttft_slo_s).all()):
        raise SpecsimError("shed.ttft=true: changes nothing: no request has a TTFT objective")
    return AdmissionControl(shed.waiting, shed.ttft)
