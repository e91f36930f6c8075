"""One cell run: the simulation of its settings, on simulated or real passes, and texts as an acceptance trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from profiler.backend.future import OracleText
from profiler.backend.known import Known
from profiler.backend.served import LookupMatch, served, texts_of
from profiler.backend.stopwatch import DeviceStopwatch
from profiler.fidelity.journal import Entry, Journal, JournalClock, predicted
from profiler.fidelity.models import Ready
from profiler.fidelity.study import REAL, REVERSE, SIMULATED, WALL, Study, StudyCell, merged
from profiler.fidelity.tables import CellOutcome
from profiler.fidelity.verdicts import CLEAR, Step, accounted
from specsim.acceptance.recorded import LEAST_CONFIDENCE, RecordedTexts
from specsim.acceptance.trace import AcceptanceTrace
from specsim.config.configured import from_words
from specsim.core.protocols import Backend, View
from specsim.core.request import Floats, Ints
from specsim.errors import SpecsimError
from specsim.metrics.recorder import Record
from specsim.metrics.summary import summarise
from specsim.rng import stream_keys
from specsim.runs.checks import beyond
from specsim.runs.prepare import prepare
from specsim.simulated_backend import GroundTruth, SimulatedBackend
from specsim.simulation import Simulation, run

TIMES = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms")
SERVICE = ("slo_attainment", "slo_goodput_tokens_per_s", "mean_tokens_per_verification", "iterations", "preemptions")
"""Figures of a whole run that a cell keeps: keys of ``metrics.json``, and of its block ``specsim``."""
SEED = 0
"""Of random tokens, and of an acceptance trace's positions off the target's path."""
AT_ONCE = 1e6
"""Requests per second at which all are there from the beginning."""
REQUESTS = ("arrival_s", "ttft_s", "tpot_s", "e2el_s", "slo_ok", "slo_class", "output_tokens", "prompt_tokens")


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts that all cells of a pair share.

    Attributes
    ----------
    profile : its file, by which schedulers decide and objectives are promised.
    words : settings of the drafter. prompts, texts : of the requests where the text is the model's.
    rate : requests per second that the first scheduler serves, once it is known.
    truth : the file of the profile that says what simulated passes take; None: `profile` does.
    """

    study: Study
    ready: Ready
    profile: Path
    words: tuple[str, ...]
    prompts: Sequence[Ints] | None = None
    texts: Sequence[OracleText] | None = None
    rate: float = np.nan
    truth: Path | None = None

    def words_of(self, cell: StudyCell) -> list[str]:
        """Return the settings of a cell, without those of the scene."""
        return [*self.study.words(self.ready.pair, cell.scheduler), f"rps={cell.load * self.rate!r}"]

    def rests_on(self, words: Sequence[str]) -> list[list[str]]:
        """Return the settings of a run with each profile that it takes, first with the one that decides."""
        profiles = [each for each in (self.profile, self.truth) if each is not None]
        return [merged([*words, f"profile={each}", *self.words]) for each in profiles]

    def simulation(self, words: Sequence[str]) -> Simulation:
        """Return the simulation of a cell's settings, with the memory and the text of this scene."""
        whole, *others = (prepare(from_words(each, sweep=False)[0]).simulation for each in self.rests_on(words))
        bytes_ = whole.memory.target_token_bytes + whole.memory.draft_token_bytes
        most = min(whole.memory.capacity_bytes, self.study.cache_tokens * bytes_)
        truth = others[0].truth if others else whole.truth
        memory = replace(whole.memory, capacity_bytes=most, drafter_bytes=0)  # Its pages are all there are.
        whole = replace(whole, truth=truth, memory=memory, step_limit_s=None)
        if self.texts is None:
            return whole
        match = self.ready.models.draft
        acceptance_trace = acceptance_trace_of(
            self.texts, SEED, match.confidence if isinstance(match, LookupMatch) else None
        )
        return replace(whole, ground_truth=GroundTruth(whole.ground_truth.output_tokens, acceptance_trace))


def with_texts(scene: Scene, words: Sequence[str]) -> Scene:
    """Return the scene with the prompts of these settings' requests, and what the target says to each alone."""
    simulation = scene.simulation(words)
    prompts = scene.ready.prompts(simulation.requests.prompt_tokens.tolist(), SEED)
    return replace(
        scene, prompts=prompts, texts=texts_of(scene.ready.models, prompts, simulation.ground_truth.output_tokens)
    )


def service_rate(scene: Scene, words: Sequence[str]) -> float:
    """Return the requests per second that are served, simulated, where all come at once.

    Raises
    ------
    SpecsimError
        When none is served.
    """
    simulation = scene.simulation([*words, f"rps={AT_ONCE}"])
    finish_s = run(simulation).progress.finish_s
    served_ = ~np.isnan(finish_s)
    if not served_.any():
        raise SpecsimError(f"cache_tokens {scene.study.cache_tokens}: no request is served; expected room for one")
    return float(np.count_nonzero(served_) / np.nanmax(finish_s))


def outcome_of(scene: Scene, cell: StudyCell, words: Sequence[str]) -> CellOutcome:
    """Run a cell and return what it leaves."""
    simulation, entries, kept = scene.simulation(words), list[Entry](), list[Known]()
    record = run(_with_backend(scene, simulation, cell, entries, kept))
    table = record.table()
    numbers = _numbers(record) | dict(zip(("extrapolated",), beyond(simulation, record), strict=False))
    numbers |= _accounts(entries, record.requests.arrival_s, cell.side)
    if kept and scene.texts is not None:
        asked = np.setdiff1d(np.arange(table.rows), list(record.rejected))
        count, widest = differing(kept[0], scene.texts, asked)
        numbers |= {"differing": count, "differing_clearly": int(widest >= CLEAR), "widest_gap": widest}
    return CellOutcome(entries, numbers, {name: table[name].tolist() for name in REQUESTS})


def _with_backend(
    scene: Scene, simulation: Simulation, cell: StudyCell, entries: list[Entry], kept: list[Known]
) -> Simulation:
    """Return the simulation whose backend writes down its passes, simulated or real."""
    thinking = simulation.selection_s, simulation.selection_token_s
    models = scene.ready.models
    looks_up = isinstance(models.draft, LookupMatch)

    def simulated(view: View) -> Backend:
        inner = SimulatedBackend(simulation.ground_truth, simulation.truth, view, simulation.host_bytes_per_s)
        return Journal(inner, None, thinking, entries, lookup=looks_up)

    if cell.side == SIMULATED:
        return replace(simulation, backend=simulated)
    device = models.target.device
    clock = JournalClock(
        DeviceStopwatch(device), simulation.truth, simulation.host_bytes_per_s, predicted=cell.side == REVERSE
    )
    wall = scene.study.clock == WALL and cell.side == REAL
    made = served(
        simulation,
        models,
        scene.prompts,
        seed=SEED,
        stopwatch=clock,
        emitted=kept.append,
        texts=scene.texts,
        wall=wall,
    )
    real = made.backend
    assert real is not None, "served() gives a backend"
    return replace(made, backend=lambda view: Journal(real(view), clock, thinking, entries, lookup=looks_up, wall=wall))


def _numbers(record: Record) -> dict[str, Any]:
    metrics = summarise(record.table(), record.totals)
    block = metrics["specsim"]
    classes = {f"attainment.{name}": each["slo_attainment"] for name, each in block["classes"].items()}
    whole = {name: metrics[name] for name in (*TIMES, "duration", "max_concurrent_requests")}
    return whole | {name: block[name] for name in SERVICE} | classes | {"rejected": len(record.rejected)}


def predicted_anew(scene: Scene, words: Sequence[str], outcome: CellOutcome) -> CellOutcome:
    """Return a real run's outcome with the seconds that the scene's truth predicts of its passes."""
    simulation, entries = scene.simulation(words), list[Entry]()
    for each in outcome.passes:
        seconds = predicted(each.role, each.shape, simulation.truth, simulation.host_bytes_per_s)
        # What the clock was not asked for took no time.
        time = each.time._replace(predicted_s=seconds if each.time.measured_s else 0.0)
        entries.append(replace(each, time=time))
    accounts = _accounts(entries, np.array(outcome.requests["arrival_s"]), REAL)
    return CellOutcome(entries, {**outcome.numbers, **accounts}, outcome.requests)


def _accounts(entries: Sequence[Entry], arrival_s: Floats, side: str) -> dict[str, float]:
    """Return the means of the run's own decisions with its own seconds, and with the other ones."""
    own = "measured_s" if side not in (SIMULATED, REVERSE) else "predicted_s"
    other = {"measured_s": "predicted_s", "predicted_s": "measured_s"}[own]
    found: dict[str, float] = {}
    for told, column in (("own", own), ("other", other)):
        if side == SIMULATED and told == "other":
            continue
        steps = (Step(each.requests, each.emitted, each.host_s + getattr(each.time, column)) for each in entries)
        means = accounted(steps, arrival_s).means(arrival_s)
        found |= {f"{told}.{name}": value for name, value in means.items()}
    return found


def acceptance_trace_of(texts: Sequence[OracleText], seed: int, confidence: float | None) -> AcceptanceTrace:
    """Return the acceptance trace of requests whose texts these are, position by position.

    Behind the end of a text it begins again. Off the target's path, where no model has read, a hash picks any position
    of a draft model; a lookup reads on in what it has found, so it goes on proposing.

    Parameters
    ----------
    confidence : of a lookup's proposals; None: a draft model's own.
    """
    length = np.array([len(each.tokens) for each in texts])
    start, requests = np.cumsum(length) - length, np.arange(len(texts))
    held, rank = np.concatenate([each.confidence for each in texts]), np.concatenate([each.rank for each in texts])
    nothing, off = np.zeros_like(requests), (0, len(held))
    if confidence is None:
        held = np.maximum(held, LEAST_CONFIDENCE)
    else:
        held, rank = confidence * np.concatenate([held, [[1.0]]]), np.append(rank, 1)
        off = len(held) - 1, 1
    keys = stream_keys(seed, "text", requests)
    off_start, off_length = (np.full_like(requests, each) for each in off)
    return AcceptanceTrace(held, rank, RecordedTexts(keys, start, off_start, nothing, length, off_length), keys)


def differing(known: Known, texts: Sequence[OracleText], served: Ints) -> tuple[int, float]:
    """Return how many of the requests `served` say something else than alone, and the widest gap where they begin to.

    The gap is that of the two likeliest logits when the target reads alone: rounding may turn a small one.
    """
    count, widest = 0, 0.0
    for request in served.tolist():
        said, alone = known.output(request), texts[request].tokens
        wrong = np.flatnonzero(said != alone[: len(said)])
        if len(wrong):
            count += 1
            widest = max(widest, float(gap(texts[request])[wrong[0]]))
    return count, widest


def gap(text: OracleText) -> Floats:
    """Return the logit of the target's likeliest token less that of the next one, (T,)."""
    first, second = np.log(np.maximum(text.probability[:, :2], 1e-300)).T
    found: Floats = first - second
    return found
