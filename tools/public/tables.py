"""The tables of docs/profiles.md, from the shipped files and the independent measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from profiler.latency.choice import usable
from profiler.latency.samples import Sample, read_samples
from profiler.text import table
from specsim.errors import SpecsimError
from specsim.latency.forms import Roofline
from specsim.latency.profile import ModelLatency, Profile, load_profile
from specsim.pass_shape import PassShape
from tools.compose_profiles import SHIPPED
from tools.public.recipes import ARTIFACTS, RECIPES

MS = 1e-3
CHUNK = 2048
MEASURED = Path(__file__).parents[2] / "results" / "profiles"
"""The raw samples of pairs that were measured."""
VERIFIED_TOKENS = (64, 128, 256, 512, 1024)
DRAFTED_TOKENS = (1, 64, 192)
CONTEXT = 512


def markdown(profiles: Path) -> str:
    """Return every table as Markdown text; errors of the profiles that are composed here alone."""
    own = sorted(recipe.name for recipe in (*RECIPES, *ARTIFACTS))
    every = [load_profile(profiles / f"{name}.yaml") for name in sorted((*own, *SHIPPED))]
    loaded = [each for each in every if each.name in own]
    tables = [
        ("Profiles", table(SUMMARY_HEAD, map(summary, every))),
        ("Held-out error of the roofline, median / p95 / worst, %", table(ERROR_HEAD, error_rows(loaded))),
        ("Composed against measured passes, error in %", table(MEASURED_HEAD, measured_rows(every))),
        ("Pass times, ms", table(TIMES_HEAD, map(times, every))),
    ]
    return "\n".join(f"### {title}\n\n{text}\n" for title, text in tables)


def renewed(page: str, tables: str) -> str:
    """Return a page with these tables in the place of its own, which begin and end alike.

    Raises
    ------
    SpecsimError
        When the page has no such tables.
    """
    begins, ends = page.find("### Profiles\n"), page.rfind("\n| `")
    if not 0 <= begins < ends:
        raise SpecsimError("the page has no tables from '### Profiles' on; expected docs/profiles.md")
    return page[:begins] + tables + page[page.index("\n", ends + 1) + 1 :]


SUMMARY_HEAD = (
    "profile",
    "baseline, ms",
    "ridge, tokens",
    "bend, tokens",
    "prefill at chunk 2,048, tokens/s",
    "with the draft's",
    "KV pool, tokens",
)
ERROR_HEAD = ("profile", "model", "decode", "verify", "prefill", "mixed")
MEASURED_HEAD = ("profile", "model", "kind of pass", "points", "median", "median without sign", "p90")
TIMES_HEAD = (
    "profile",
    *(f"verify {tokens}" for tokens in VERIFIED_TOKENS),
    *(f"draft {tokens}" for tokens in DRAFTED_TOKENS),
)


def prefill_s(model: ModelLatency) -> float:
    """Return the seconds of a first chunk of 2,048 tokens."""
    return model.seconds(PassShape.prompt(CHUNK))


def summary(profile: Profile) -> list[str]:
    """Return a row of the first table."""
    form = profile.target.chosen
    ridge = form.knee_tokens if isinstance(form, Roofline) else None
    return [
        f"`{profile.name}`",
        f"{profile.baseline_s / MS:.1f}",
        *("-" if tokens is None else f"{tokens:.0f}" for tokens in (ridge, profile.target.bend_tokens)),
        f"{CHUNK / prefill_s(profile.target):,.0f}",
        f"{CHUNK / (prefill_s(profile.target) + prefill_s(profile.draft)):,.0f}",
        f"{profile.usable_kv_tokens:,}",
    ]


def error_rows(profiles: Iterable[Profile]) -> Iterable[list[str]]:
    """Yield a row per model that has error figures."""
    for profile in profiles:
        for role, model in (("target", profile.target), ("draft", profile.draft)):
            if not model.fit_error:
                continue
            cells = [
                " / ".join(f"{100 * error[each]:.1f}" for each in ("median", "p95", "worst"))
                for error in model.fit_error.values()
            ]
            yield [f"`{profile.name}`", role, *cells]


def measured_rows(profiles: Iterable[Profile]) -> Iterator[list[str]]:
    """Yield a row for each kind of pass of a pair that was measured on its GPU and is composed too."""
    for profile in profiles:
        raw = MEASURED / f"{profile.name}.samples.parquet"
        for role, model in (("target", profile.target), ("draft", profile.draft)) if raw.is_file() else ():
            of_kind: dict[str, list[float]] = {}
            for each in usable(read_samples(raw)[1], role):
                of_kind.setdefault(each.kind, []).append(off_by(model, each))
            for kind, errors in of_kind.items():
                median, p90 = np.quantile(np.abs(errors), [0.5, 0.9])
                shown = f"{np.median(errors):+.1f}", f"{median:.1f}", f"{p90:.1f}"
                yield [f"`{profile.name}`", role, kind, str(len(errors)), *shown]


def off_by(model: ModelLatency, sample: Sample) -> float:
    """Return by how many percent a composed pass is off a measured one."""
    pairs, logits = sample.attention_pairs, sample.logit_tokens
    shape = PassShape(sample.context_tokens, sample.batched_tokens, pairs, 0, logits, sample.requests)
    return 100 * (model.chosen.seconds(shape) / (sample.median_s + sample.all_reduce_s) - 1)


def times(profile: Profile) -> list[str]:
    """Return a row of verification times (trees of 8 tokens) and draft times (one token each)."""
    verify = [
        profile.target.seconds(PassShape(CONTEXT * n / 8, n, n * CONTEXT + n * 9 / 2, 0, n, n // 8)) / MS
        for n in VERIFIED_TOKENS
    ]
    draft = [profile.draft.seconds(PassShape.decode(CONTEXT * n, n)) / MS for n in DRAFTED_TOKENS]
    return [f"`{profile.name}`", *(f"{each:.1f}" for each in verify), *(f"{each:.2f}" for each in draft)]
