"""The answer of `tune` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING

from specsim.metrics.tables import aligned

if TYPE_CHECKING:
    from specsim.metrics.tuned import Tuned

AS_GIVEN = "as given"
"""The conditions that the settings describe."""
SPEEDUP_OFF = 0.038
"""By how much predicted speed-ups are off, the median over the measured ones of docs/speedups.md."""


def answer(tuned: Tuned) -> Iterator[str]:
    """Yield the answer: sentences, the configurations, other conditions, and what follows."""
    yield from _sentences(tuned)
    yield ""
    yield from _configurations(tuned)
    yield ""
    yield from _conditions(tuned)
    yield ""
    yield from _follows(tuned)


def _sentences(tuned: Tuned) -> Iterator[str]:
    load = "With these clients" if tuned.rate is None else f"At {tuned.rate:g} requests/s"
    yield f"{load} the best is {tuned.best.name}: {_of(tuned, *tuned.measured(0), unit=True)}."
    low, high = (_of(tuned, each, nan) for each in tuned.band())
    off = f"{100 * (tuned.error or 0):.2g}%"
    passes = f"its passes take {off} more or less (held-out error of the profile), or "
    drafts = f"drafts bring {100 * SPEEDUP_OFF:.2g}% less or more (median error of predicted speed-ups)"
    yield f"{low} to {high}{'%' if tuned.is_share else ''} if {passes if tuned.error else ''}{drafts}."
    for place in dict.fromkeys((1, tuned.plain)):
        if 0 < place < len(tuned.candidates):
            lead, name = _of(tuned, *tuned.lead(place), sign="+"), tuned.candidates[place].name
            points = " points" if tuned.is_share else ""
            level = "" if tuned.decided(place) else ": level, no difference shows beyond the noise"
            yield f"{lead}{points} against {name}{level}."


def _configurations(tuned: Tuned) -> Iterator[str]:
    given = tuned.judgements[AS_GIVEN]
    classes = list(given[0].classes)
    rows = [["", "tuned on", "judged on", "lead", *classes]]
    for place, each in enumerate(tuned.candidates):
        lead = _of(tuned, *tuned.lead(place), sign="+") if place else ""
        attained = [f"{100 * float(given[place].classes[name].mean()):.1f}" for name in classes]
        rows.append([each.scheduler, _of(tuned, each.tuned, nan), _of(tuned, *tuned.measured(place)), lead, *attained])
    settings = ["settings", *(each.name.partition(" ")[2].strip("()") for each in tuned.candidates)]
    yield from _titled(f"{tuned.whose}{', %' if tuned.is_share else ''}; classes, %", rows, settings)


def _conditions(tuned: Tuned) -> Iterator[str]:
    second = tuned.candidates[1].scheduler if len(tuned.candidates) > 1 else "the second"
    rows = [["", "best", f"lead over {second}", "over no drafts"]]
    for said, of in tuned.judgements.items():
        leads = [_of(tuned, *tuned.lead(at, said), sign="+") if at and at in of else "" for at in (1, tuned.plain)]
        rows.append([said, _of(tuned, *tuned.measured(0, said)), *leads])
    yield from _titled(f"{tuned.whose}{', %' if tuned.is_share else ''}, if", rows)


def _titled(title: str, rows: Sequence[Sequence[str]], behind: Sequence[str] = ()) -> Iterator[str]:
    """Yield a table, a title above its first column, with texts behind its lines."""
    (_, *head), *body = rows
    lines = aligned([[title, *head], *body], left=1)
    wide = max(map(len, lines))
    yield from (f"{line.ljust(wide)}  {each}" for line, each in zip(lines, behind, strict=True)) if behind else lines


def _of(tuned: Tuned, mean: float, half_width: float, *, sign: str = "", unit: bool = False) -> str:
    """Return a measure with half its interval, in per cent where it is a share."""
    if not isfinite(mean):
        return ""
    if not tuned.is_share:
        shown = f"{mean:{sign},.1f}"
        half, said = f"{half_width:,.1f}", f" {tuned.of}"
    else:
        shown, half = f"{100 * mean:{sign}.1f}", f"{100 * half_width:.1f}"
        said = f"% of {tuned.whose} meet their objectives"
    known = f" \u00b1 {half}" if isfinite(half_width) else ""
    return f"{shown}{known}{said if unit else ''}"


def _follows(tuned: Tuned) -> Iterator[str]:
    """Yield the highest rate, the servers for the rate, and when not to speculate."""
    if tuned.found is not None:
        kept = f"highest rate with {100 * tuned.target:g}% of {tuned.whose}"
        for line, place in zip(tuned.found.lines, tuned.searched, strict=True):
            each, name = tuned.found.capacity(line), tuned.candidates[place].scheduler
            rate = f"below {tuned.found.asked.first:g}" if each.keeps is None else f"{each.keeps:.3g}"
            if isfinite(each.half_width):
                rate = f"{each.mean:.3g} \u00b1 {each.half_width:.2g}"
            elif each.keeps is not None and each.misses is None:
                rate = f"at least {rate}"
            yield f"{kept}: {rate} requests/s with {name}"
        servers, gpus = tuned.replicas, tuned.gpus
        count = "no number of servers was found" if servers is None else f"{servers * gpus} ({servers} x {gpus})"
        by = f" with {tuned.candidates[tuned.carrier].scheduler}" if servers is not None else ""
        yield f"GPUs for {tuned.rate:g} requests/s: {count}{by}"
    if tuned.plain == 0:
        level = "drafts gain nothing that shows: level with decoding without drafts"
        yield "do not speculate: decoding without drafts does best" if tuned.decided(1) else level
        return
    since = tuned.no_drafts_from()
    when = [*tuned.drafts_cost(), *([] if since is None else [f"from {since:g} requests/s on"])]
    yield f"drafts gain nothing: {'; '.join(when)}" if when else "drafts gain under all of these conditions"
