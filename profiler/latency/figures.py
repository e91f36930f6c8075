"""Two figures of a fit: predicted against measured, and time against batched tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from profiler.latency.choice import Choice

MS = 1e3
INK = {
    "decode": "#2a6fbb",
    "draft": "#2a6fbb",
    "verify": "#d1495b",
    "catchup": "#d1495b",
    "prefill": "#3a7d44",
    "mixed": "#8e6c8a",
}


def draw(choices: dict[str, Choice], mapping: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Draw both figures for target and draft side by side; return the files."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for kind, panel in (("error", _predicted), ("tokens", _tokens)):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        for axes, (role, choice) in zip(figure.subplots(1, 2), choices.items(), strict=True):
            panel(axes, choice, mapping, role)
            _log_scales(axes)
            axes.grid(alpha=0.25, which="major")
            axes.set_title(f"{role}: {mapping[role]['name']}", fontsize=10)
        figure.suptitle(f"{name}, {mapping['form']}", fontsize=11)
        path = folder / f"{name}-{kind}.png"
        figure.savefig(path, dpi=130)
        drawn.append(path)
    return drawn


def _log_scales(axes: Any) -> None:
    """Both axes logarithmic, with plain numbers at as many ticks as the span has room for."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        decades = np.log10(high / low)
        subs = (1, 2, 3, 4, 5, 6, 8) if decades < 1 else (1, 2, 5) if decades < 3 else (1,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _predicted(axes: Any, choice: Choice, mapping: dict[str, Any], _: str) -> None:
    """Held-out predictions over measurements; the shaded band is ten percent either way."""
    measured, held_out = choice.samples.seconds * MS, choice.forms[mapping["form"]].held_out_s * MS
    line = np.array([measured.min(), measured.max()])
    axes.fill_between(line, 0.9 * line, 1.1 * line, color="0.88", lw=0)
    axes.plot(line, line, color="0.5", lw=1)
    for kind in dict.fromkeys(choice.samples.kinds.tolist()):
        chosen = choice.samples.kinds == kind
        axes.plot(measured[chosen], held_out[chosen], "o", ms=3.5, alpha=0.7, color=INK[kind], label=kind, mew=0)
    axes.set_xlabel("measured (ms)")
    axes.set_ylabel("predicted, shape held out (ms)")
    axes.legend(fontsize=8, frameon=False)


def _tokens(axes: Any, choice: Choice, mapping: dict[str, Any], role: str) -> None:
    """Measurements over batched tokens, the form without context, and the knee."""
    samples, form = choice.samples, choice.forms[mapping["form"]].fitted.form
    for kind in dict.fromkeys(samples.kinds.tolist()):
        chosen = samples.kinds == kind
        axes.plot(
            samples.batched[chosen],
            samples.seconds[chosen] * MS,
            "o",
            ms=3.5,
            alpha=0.6,
            color=INK[kind],
            label=kind,
            mew=0,
        )
    tokens = np.geomspace(1, samples.batched.max(), 300)
    bare = form.seconds_array(np.zeros_like(tokens), tokens, np.zeros_like(tokens)) * MS
    axes.plot(tokens, bare, color="0.2", lw=1.2, label="form, no context")
    knee = mapping["checks"]["knee_tokens"][role]
    if knee["fitted"] is not None and 1 <= knee["fitted"] <= tokens[-1]:
        axes.axvline(knee["fitted"], color="0.4", lw=0.9, ls="--", label=f"knee {knee['fitted']:.0f}")
    axes.set_xlabel("batched tokens")
    axes.set_ylabel("pass (ms)")
    axes.legend(fontsize=8, frameon=False)
