"""Acceptance from the accepted lengths of verifications, as engines and benchmarking tools log them by request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.acceptance.curves import MOST_POSITIONS, Acceptance
from specsim.acceptance.positions import LEAST_RATE, MOST_RATE, SPREAD, curve_of, shape_of, worth
from specsim.core.request import Floats, Ints
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import MOST, CheckedMapping, expanded
from specsim.files.yaml_file import check_file

NESTED: tuple[tuple[str | int, ...], ...] = (
    ("spec_decode_acceptance",),
    ("metrics", "speculative_decoding"),
    ("choices", 0, "speculative_decoding"),
    ("meta_info",),
    ("out", "meta_info"),
    ("choices", 0, "meta_info"),
)
"""Places of the counts in a line of aiperf, in an answer of vLLM, TensorRT-LLM and SGLang, and in SGLang's JSON log."""
ACCEPTED = ("accepted", "per_step_accepted")
HISTOGRAM = ("histogram", "acceptance_histogram", "spec_correct_drafts_histogram", "spec_accept_histogram")
DRAFTED = ("k", "per_step_drafted", "num_spec_tokens")
PROPOSED = ("num_draft_tokens", "total_draft_tokens", "spec_num_proposed_drafts", "spec_draft_token_num")
COUNTED = re.compile(rf"""['"]({"|".join((*HISTOGRAM, *PROPOSED))})['"]: (\[[\d, ]*\]|\d+)""")
"""Counts in a line of SGLang's request log as text, which prints Python's own mappings."""
LOGGED = re.compile(
    r"(?:Accepted: (\d+) tokens, )?Drafted: (\d+) tokens, Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)"
)
"""Counts in a line of vLLM's log."""
ROUNDED = 0.0005
"""How far the rates of a line, which have three decimals, are off at most."""
MEANS = re.compile(
    r"Decode batch.*?#running-req: (\d+),.*?accept len: (\d+\.\d+)|sglang:spec_accept_length(?:\{[^}]*\})? (\d+\.\d+)"
)
"""The requests of a batch and the mean length in a line of SGLang's log, or the mean length of its /metrics."""
SCRAPED = re.compile(r"vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens_per_pos)_total\{([^}]*)\} ([\d.e+-]+)")
DRAFTS, TOKENS = "spec_decode_num_drafts", "spec_decode_draft_tokens"
RATES = "spec_decode_per_position_acceptance_rates"
"""Keys of a result of `vllm bench serve`."""
POSITION = re.compile(r'position="(\d+)"')
"""Counters of vLLM's /metrics."""
TREES = re.compile(r"speculative_eagle_topk=([2-9]|\d{2,})\b")
"""Drafts of trees, in the line of SGLang's log that tells its arguments."""


class Verified(NamedTuple):
    """The verifications of one request, or of a server.

    Attributes
    ----------
    category : of the text, "" where none is said. k : the most tokens of a draft.
    right, reached : (k,) by draft position, verifications whose token there was right, and those that proposed one
        behind right ones alone.
    short : tokens by which drafts were shorter than k, where the line does not say which.
    """

    category: str
    k: int
    right: Floats
    reached: Floats
    short: int = 0


def verifications(text: str, source: str, k: int | None, field: str | None) -> tuple[list[Verified], list[Verified]]:
    """Return the verifications of each request, and those of a server whose lines name none.

    Raises
    ------
    SpecsimError
        One line naming the file, the line and the field.
    """
    requests: list[Verified] = []
    intervals: list[Verified] = []
    scraped: dict[tuple[str, str], float] = {}
    for number, item in _items(text, source):
        node = CheckedMapping(f"{source}: line {number}", "", {})
        try:
            if isinstance(item, str):
                item = _counts(item)
            if isinstance(item, str):
                intervals += [_logged(node, *each) for each in LOGGED.findall(item) if int(each[1])]
                scraped |= {each[:2]: float(each[2]) for each in SCRAPED.findall(item)}
                continue
            if isinstance(item, Mapping) and item.get(RATES):
                result = CheckedMapping(node.source, "", item)
                right = np.array([1.0, *result.numbers(RATES, 1)])
                tokens = result.whole(TOKENS, 0) if result.given(TOKENS) else None
                intervals.append(_of_server(result, right * result.whole(DRAFTS, 1), tokens))
                continue
            found = _verified(item, node, k, field)
        except (ValueError, RecursionError) as error:
            node.refuse("", f"is damaged: {error}")
        requests += [found] if found is not None and found.reached[0] else []
    if requests and k is None and (trees := TREES.search(text)):
        said = f"accepted lengths of trees ({trees[0].replace('=', ' ')})"
        raise SpecsimError(f"{source}: {said}; expected those of chains, or k, their depth, in a file of kind runs")
    return requests, intervals or _scraped(CheckedMapping(source, "", {}), scraped)


def _items(text: str, source: str) -> Iterable[tuple[int, Any]]:
    """Yield the number of each line and the line, or of a JSON list each place and what stands there."""
    if not re.match(r"\s*\[\s*\{", text):
        yield from ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
        return
    try:
        yield from enumerate(json.loads(text), 1)
    except (ValueError, RecursionError) as error:
        raise SpecsimError(f"{source}: is damaged JSON: {error}") from None


def _counts(line: str) -> Any:
    """Return what a line of JSON or of SGLang's log as text tells, or the line where it is neither."""
    if line.lstrip().startswith("{"):
        return json.loads(line)
    return {name: json.loads(value) for name, value in COUNTED.findall(line)} or line


def _logged(node: CheckedMapping, accepted: str, drafted: str, rates: str) -> Verified:
    """Return the verifications of an interval of vLLM's log; those of shorter drafts show in the accepted tokens."""
    right = np.array([1.0, *map(float, rates.split(", "))])
    k, total = len(right) - 1, right[1:].sum()
    full, told = int(drafted) / k, int(accepted or 0) / max(total, LEAST_RATE)
    shorter = int(accepted or 0) > full * (total + k * ROUNDED)
    return _of_server(node, right * (told if shorter else full), int(drafted) if shorter else None)


def _scraped(node: CheckedMapping, counters: Mapping[tuple[str, str], float]) -> list[Verified]:
    """Return the verifications that the last scrape of a server's /metrics tells of, all its engines together."""
    held: dict[int, float] = {}
    tokens = sum(value for (name, _), value in counters.items() if name == "draft_tokens")
    for (name, labels), value in counters.items():
        position = POSITION.search(labels)
        if name == "drafts" or position:
            place = int(position[1]) if position else -1
            held[place] = held.get(place, 0.0) + value
    if not held.get(-1) or len(held) == 1:
        return []
    if sorted(held) != list(range(-1, len(held) - 1)):
        node.refuse("", "a draft position before the last has no counter of accepted tokens")
    return [_of_server(node, np.array([held[place] for place in sorted(held)]), tokens or None)]


def _of_server(node: CheckedMapping, held: Floats, tokens: float | None = None) -> Verified:
    """Return the verifications of a server from drafts and tokens that were right by draft position, (k + 1,).

    `tokens` are all that it drafted, fewer than k a draft where lengths differ; None: it does not say.
    """
    if len(held) > MOST_POSITIONS + 1:
        node.refuse("", f"{len(held) - 1} draft positions; expected at most {MOST_POSITIONS}")
    if not np.isfinite(held).all() or (np.diff(held) > 0).any():
        node.refuse("", "more tokens accepted at a draft position than at the one before")
    k = len(held) - 1
    short = 0.0 if tokens is None else max(k * float(held[0]) - tokens, 0.0)
    return Verified("", k, held[1:], held[:-1], round(short))


def _verified(item: Any, node: CheckedMapping, k: int | None, field: str | None) -> Verified | None:
    """Return the verifications that a line tells of, None for aiperf's warm-up and for a line without any."""
    if not isinstance(item, Mapping):
        node.refuse("", "expected a mapping")
    about = item.get("metadata")
    about = about if isinstance(about, Mapping) else {}
    if about.get("benchmark_phase") == "warmup":
        return None
    category = str(item.get("category") or about.get("source_kind") or "")
    counts = next((each for place in NESTED if (each := _below(item, place))), item)
    node = CheckedMapping(node.source, "", counts)
    if field is not None:
        return _of_positions(CheckedMapping(node.source, "", item), category, k, field)
    drafted = _drafted(node, k)
    listed, histogram = _first(counts, ACCEPTED), _first(counts, HISTOGRAM)
    if listed == ACCEPTED[0] and histogram == HISTOGRAM[0]:
        node.refuse(histogram, f"beside {listed}; expected one of them")
    if listed:
        accepted = _wholes(node, listed, MOST_POSITIONS)
        return _counted(node, listed, category, accepted, np.ones(len(accepted)), drafted)
    if not histogram:
        return None
    accepted, steps = _bars(node, histogram)
    total, proposed = steps.sum(), _first(counts, PROPOSED)
    if proposed is None or not total:
        return _counted(node, histogram, category, accepted, steps, drafted)
    held = node.whole(proposed, 0)
    drafted = int(-(-held // total)) if drafted is None else drafted
    if isinstance(drafted, int) and drafted > MOST_POSITIONS:
        node.refuse(proposed, f"{held} tokens drafted by {total} verifications; expected at most {MOST_POSITIONS} each")
    found = _counted(node, histogram, category, accepted, steps, drafted)
    return found._replace(short=max(int(found.k * total - held), 0))


def _drafted(node: CheckedMapping, k: int | None) -> Ints | int | None:
    """Return the tokens of each draft as a line states them, or else the acceptance file's own k."""
    name = _first(node.values, DRAFTED)
    if name is None:
        return k
    listed = isinstance(node.values[name], list)
    return _wholes(node, name, MOST_POSITIONS) if listed else node.whole(name, 1, MOST_POSITIONS)


def _wholes(node: CheckedMapping, name: str, most: int) -> Ints:
    """Return a list of whole numbers, which may be empty."""
    return np.array(node.wholes(name, 0, most) if node.values[name] else (), dtype=np.int64)


def _bars(node: CheckedMapping, name: str) -> tuple[Ints, Ints]:
    """Return accepted tokens and the verifications that accepted so many, (n,) each, from a list or a mapping."""
    value = node.values[name]
    if not isinstance(value, Mapping):
        steps = _wholes(node, name, MOST)
        return np.arange(len(steps)), steps
    if not all(str(each).isdecimal() and int(each) <= MOST_POSITIONS for each in value):
        node.fail(name, f"verifications by accepted tokens, 0 to {MOST_POSITIONS}")
    bars = CheckedMapping(node.source, node.path(name), value)
    steps = np.array([bars.whole(each, 0) for each in value], dtype=np.int64)
    return np.array([int(each) for each in value], dtype=np.int64), steps


def _counted(
    node: CheckedMapping, name: str, category: str, accepted: Ints, steps: Any, drafted: Ints | int | None
) -> Verified:
    """Return counts by draft position of `steps` verifications that accepted so many of `drafted` tokens, (n,) each."""
    if drafted is None:
        node.refuse(name, "without the tokens of a draft; expected k beside it, or in the acceptance file")
    tokens = np.broadcast_to(drafted, accepted.shape) if isinstance(drafted, int) else drafted
    if tokens.shape != accepted.shape:
        node.refuse(name, f"{len(accepted)} verifications, but {len(tokens)} drafts")
    if (accepted > tokens)[np.asarray(steps) > 0].any():
        node.refuse(name, f"{int((accepted * (steps > 0)).max())} tokens accepted of {int(tokens.max())} drafted")
    k = int(tokens.max(initial=1))
    place = np.arange(k)[:, None]
    right = (steps * (accepted > place)).sum(axis=1, dtype=np.float64)
    reached = (steps * ((accepted >= place) & (tokens > place))).sum(axis=1, dtype=np.float64)
    return Verified(category, k, right, reached)


def _of_positions(node: CheckedMapping, category: str, k: int | None, field: str) -> Verified:
    """Return the verifications of chains of k along a text whose every position tells the tokens of a verification.

    SpecDecode-Bench writes such lists: from each output position the tokens that a verification would emit there, the
    target's own included.
    """
    value = node.values.get(field)
    if isinstance(value, Mapping):
        node = node.child(field)
        field = "acc_len"
    lengths = node.wholes(field, 1)
    if k is None:
        node.refuse(field, "tells not how many tokens were drafted; expected k in the acceptance file")
    accepted, at = [], 0
    while at < len(lengths):
        accepted.append(min(lengths[at] - 1, k))
        at += accepted[-1] + 1
    return _counted(node, field, category, np.array(accepted), np.ones(len(accepted)), k)


def _below(item: Any, place: tuple[str | int, ...]) -> Mapping[str, Any] | None:
    """Return the mapping at a place within a line, None where there is none."""
    for key in place:
        if not (key in item if isinstance(item, Mapping) else isinstance(item, list) and key == 0 and item):
            return None
        item = item[key]
    return item if isinstance(item, Mapping) else None


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of these names whose value is not null."""
    return next((name for name in names if counts.get(name) is not None), None)


MOST_BYTES = 1 << 30
EXPECTED = "expected those of aiperf, vLLM, SGLang or TensorRT-LLM, or with field= those of SpecDecode-Bench"
LEAST_REACHED = 20
"""Verifications that tell a draft position's rate; a position with fewer takes the rate of the one before."""
LEAST_REQUESTS, WIDEST = 10, 0.5
"""Requests that a spread is fitted to, at least, and the widest 95% interval around the assumed one that is taken."""
NORMAL_95 = 1.96
FARTHEST, WIDEST_STEP, MOST_STEPS = 5.0, 0.05, 8000
"""Deviations over which the normal distribution between requests is integrated, and in which steps at most."""
MOST_VERIFICATIONS = 100_000
"""Of a request, so that the steps are small enough."""
AT_ONCE = 1 << 20
"""Likelihoods that are held at once."""
STEP = 1e-3
"""Of logits and the spread, over which the likelihood's curvature is taken."""


def mean_length(text: str) -> float | None:
    """Return the mean length over the verifications that SGLang's log, or a scrape of its metrics, tells of."""
    found = [(float(batch or 1), float(logged or scraped)) for batch, logged, scraped in MEANS.findall(text)]
    batches, lengths = [batch for batch, length in found if length], [length for _, length in found if length]
    return float(np.average(lengths, weights=batches)) if sum(batches) else None


class Fitted(NamedTuple):
    """Conditional rates by draft position, pooled over drafts of `chain` tokens, the spread, and a line about both."""

    rates: tuple[float, ...]
    chain: int
    spread: float | None
    counts: str
    how: str


def runs(node: CheckedMapping, folder: Path) -> Acceptance:
    """Return the acceptance of checked keys of ``kind: runs``: accepted lengths by request (docs/acceptance.md)."""
    shape = ("concentration", "spread", "tail", "match", "width", "levels")
    node.only(("kind", "path"), ("description", "pair", "k", "field", *shape))
    width, levels = shape_of(node)
    path = folder / expanded(node.text("path", "the name of a file"), f"{node.source}: path: ")
    facts = check_file(path, MOST_BYTES, "file", f"{node.source}: path: ")
    k = node.whole("k", 1, MOST_POSITIONS) if node.given("k") else None
    field = node.text("field", "the name of a field") if node.given("field") else None
    checksum, found = _fitted(path, facts.st_mtime_ns, facts.st_size, k, field)
    curves, said = {}, {}
    for name, each in found.items():
        curves[name] = curve_of(node, each.rates, each.chain, SPREAD if each.spread is None else each.spread)
        how = f"{'stated' if node.given('spread') else each.how}: {curves[name].spread:.3g}"
        said[name] = f"{name}: {each.counts}: {worth(curves[name])}; spread between requests {how}"
    known = min(each.chain for each in curves.values())
    return Acceptance(curves, width, levels, notes=said, sha256=checksum, known=known)


@lru_cache(maxsize=4)
def _fitted(
    path: Path, _changed_ns: int, _size: int, k: int | None, field: str | None
) -> tuple[str, dict[str, Fitted]]:
    """Return the checksum of a file, and what its verifications come to; see `fitted`."""
    content = path.read_bytes()
    requests, server = verifications(text := content.decode("utf-8-sig", "replace"), str(path), k, field)
    if not requests and not server:
        said = "those of a Parquet recording have a YAML of kind: recorded" if content[:4] == b"PAR1" else EXPECTED
        said = (
            "SGLang's mean lengths are for `specsim import`, or a file of kind: length" if mean_length(text) else said
        )
        raise SpecsimError(f"{path}: no accepted lengths; {said} (docs/acceptance.md)")
    return sha256(content).hexdigest(), fitted(requests, server)


def fitted(requests: list[Verified], server: list[Verified]) -> dict[str, Fitted]:
    """Return what the verifications of requests, or else of a server, come to by category; `default` is all of them."""
    by_category: dict[str, list[Verified]] = {}
    for each in requests:
        if each.category:
            by_category.setdefault(each.category, []).append(each)
    by_category.setdefault("default", requests or server)
    return {name: _fit(verified, server=not requests) for name, verified in by_category.items()}


def _fit(verified: list[Verified], *, server: bool) -> Fitted:
    """Return what the verifications of a category, or of intervals of a server, come to.

    The rates are those of all verifications. The spread has the greatest likelihood of the requests' own counts, each
    request's rates being logit-normal with one deviation at all positions, as in `curves.level_rates`.
    """
    k = max(each.k for each in verified)
    right, reached = (
        np.stack([np.pad(counts, (0, k - len(counts))) for counts in column])
        for column in ([each.right for each in verified], [each.reached for each in verified])
    )
    hits, steps = right.sum(axis=0), reached.sum(axis=0)
    told = max(int((steps >= LEAST_REACHED).sum()), 1)
    rates = np.clip(hits / np.maximum(steps, 1), LEAST_RATE, MOST_RATE)[: int((steps > 0).sum())]
    for place in range(told, len(rates)):
        lent = (LEAST_REACHED - steps[place]) * rates[place - 1]
        rates[place] = np.clip((hits[place] + lent) / LEAST_REACHED, LEAST_RATE, MOST_RATE)
    by_request = right[:, :told], reached[:, :told], rates[:told]
    spread, how = (None, "assumed, as a server tells no requests apart") if server else _spread(*by_request)
    short = sum(each.short for each in verified)
    lost = f", {short:,} tokens fewer drafted than k each: deep rates may be low" if short else ""
    never = [place for place in range(1, told) if not hits[place]][:1]
    depth = "".join(f", none of {steps[at]:,.0f} right at position {at + 1}: k of trees is their depth" for at in never)
    deep = f"position {k}" if told == k - 1 else f"positions {told + 1} to {k}"
    few = f", fewer than {LEAST_REACHED} at {deep}: rates there lean on the one before" if told < k else ""
    mean = f"{steps[0]:,.0f} verifications of {1 + hits.sum() / steps[0]:.3g} tokens{few}{lost}{depth}"
    counts = f"{'a server' if server else f'{len(verified):,} requests'}, {mean}"
    return Fitted(tuple(rates.tolist()), k, spread, counts, how)


def _spread(right: Floats, reached: Floats, rates: Floats) -> tuple[float | None, str]:
    """Return the spread of greatest likelihood, None where the counts cannot tell it, and how it was found."""
    if len(right) < LEAST_REQUESTS:
        return None, f"assumed, as the counts are of fewer than {LEAST_REQUESTS} requests"
    if reached.max() > MOST_VERIFICATIONS:
        return None, f"assumed, as a request of over {MOST_VERIFICATIONS:,} verifications is several"
    from scipy.optimize import minimize

    counts = right, reached - right
    start = np.append(np.log(rates / (1 - rates)), SPREAD)
    bounds = [(-10.0, 10.0)] * len(rates) + [(0.0, 10.0)]
    best = minimize(_misfit, start, counts, method="L-BFGS-B", jac=True, bounds=bounds).x
    steps = STEP * np.eye(len(best))
    curvature = np.stack([_misfit(best + each, *counts)[1] - _misfit(best - each, *counts)[1] for each in steps])
    variance = float(np.linalg.pinv(curvature / (2 * STEP), hermitian=True)[-1, -1])
    spread = float(best[-1]) if best[-1] >= STEP else 0.0
    low, high = (spread + side * NORMAL_95 * max(variance, 0.0) ** 0.5 for side in (-1, 1))
    if variance <= 0 or low <= 0:
        # The likelihood is even in the spread: near 0 its curvature tells no interval.
        low, high = 0.0, _highest(best, counts, bounds)
    if high - low > WIDEST and low <= SPREAD <= high:
        return None, f"assumed, as these requests tell {low:.2g} to {high:.2g}"
    return spread, f"fitted, {low:.2g} to {high:.2g} with 95%"


def _highest(best: Floats, counts: tuple[Floats, Floats], bounds: list[tuple[float, float]]) -> float:
    """Return the spread above the best one that the likelihood, with centres of its own, leaves within 95%."""
    from scipy.optimize import brentq, minimize

    least = _misfit(best, *counts)[0] + NORMAL_95**2 / 2

    def beyond(spread: float) -> float:
        start, held = np.append(best[:-1], spread), [*bounds[:-1], (spread, spread)]
        return float(minimize(_misfit, start, counts, method="L-BFGS-B", jac=True, bounds=held).fun) - least

    low = high = max(float(best[-1]), STEP)
    while beyond(high) < 0 and high < bounds[-1][1]:
        low, high = high, min(4 * high, bounds[-1][1])
    return float(brentq(beyond, low, high, xtol=STEP)) if beyond(high) > 0 > beyond(low) else high


def _misfit(centres_and_spread: Floats, right: Floats, wrong: Floats) -> tuple[float, Floats]:
    """Return minus the log likelihood of counts (requests, positions), and its slope.

    A request's logit at a position is that position's centre plus the spread times one normal deviation.
    """
    from scipy.special import expit, log_expit, logsumexp

    spread, most = centres_and_spread[-1], (right + wrong).sum(axis=1).max()
    # A step at most as wide as the likelihood of any request: n counts tell a logit with a variance of 4 / n at least.
    steps = min(2 * FARTHEST / min(WIDEST_STEP, (1 + spread**2 * most / 4) ** -0.5), MOST_STEPS)
    deviations = np.linspace(-FARTHEST, FARTHEST, 1 + round(steps))
    logits = centres_and_spread[:-1, None] + spread * deviations
    rate, log_right, log_wrong = expit(logits), log_expit(logits), log_expit(-logits)
    value, slope = 0.0, np.zeros(len(centres_and_spread))
    rows = AT_ONCE // len(deviations)
    for first in range(0, len(right), rows):
        yes, no = right[first : first + rows], wrong[first : first + rows]
        likelihood = yes @ log_right + no @ log_wrong - deviations**2 / 2
        whole = logsumexp(likelihood, axis=1, keepdims=True)
        odds = np.exp(likelihood - whole)
        excess = yes.T @ odds - rate * ((yes + no).T @ odds)
        value -= float((whole - np.log(len(deviations))).sum())
        slope -= np.append(excess.sum(axis=1), (excess @ deviations).sum())
    return value, slope
