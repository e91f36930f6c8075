"""Two figures of a fit: predicted against measured, and time against batched tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from profiler.latency.choice import FormChoice
from profiler.latency.fit import Floats, Samples
from specsim.pass_shape import PassShapes

MS = 1e3
INK = {
    "decode": "#2a6fbb",
    "draft": "#2a6fbb",
    "verify": "#d1495b",
    "catchup": "#d1495b",
    "prefill": "#3a7d44",
    "mixed": "#8e6c8a",
}


def draw(choices: dict[str, FormChoice], mapping: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Draw both figures for target and draft side by side; return the files.

    Raises
    ------
    SpecsimError
        Naming the figure that cannot be written.
    """
    from matplotlib.figure import Figure

    from specsim.figures.plots import save

    drawn = {}
    for kind, panel in (("error", _predicted), ("tokens", _tokens)):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        for axes, (role, choice) in zip(figure.subplots(1, 2), choices.items(), strict=True):
            panel(axes, choice, mapping, role)
            _log_scales(axes)
            axes.grid(alpha=0.25, which="major")
            axes.set_title(f"{role}: {mapping[role]['name']}", fontsize=10)
        figure.suptitle(f"{name}, {mapping['form']}", fontsize=11)
        drawn[f"{name}-{kind}"] = figure
    return save(drawn, folder, ("png",))


def _log_scales(axes: Any) -> None:
    """Make both axes logarithmic, with plain numbers at as many ticks as fit."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        decades = np.log10(high / low)
        subs = (1, 2, 3, 4, 5, 6, 8) if decades < 1 else (1, 2, 5) if decades < 3 else (1,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _points(axes: Any, samples: Samples, x: Floats, y: Floats) -> None:
    for kind in dict.fromkeys(samples.kinds.tolist()):
        chosen = samples.kinds == kind
        axes.plot(x[chosen], y[chosen], "o", ms=3.5, alpha=0.7, color=INK[kind], label=kind, mew=0)


def _predicted(axes: Any, choice: FormChoice, mapping: dict[str, Any], _: str) -> None:
    """Draw held-out predictions over measurements; the shaded band is +- 10%."""
    measured, held_out = choice.samples.seconds * MS, choice.forms[mapping["form"]].held_out_s * MS
    line = np.array([measured.min(), measured.max()])
    axes.fill_between(line, 0.9 * line, 1.1 * line, color="0.88", lw=0)
    axes.plot(line, line, color="0.5", lw=1)
    _points(axes, choice.samples, measured, held_out)
    axes.set_xlabel("measured (ms)")
    axes.set_ylabel("predicted, shape held out (ms)")
    axes.legend(fontsize=8, frameon=False)


def _tokens(axes: Any, choice: FormChoice, mapping: dict[str, Any], role: str) -> None:
    """Draw measurements over batched tokens, the roofline's ridge, and the form without context.

    Of a verification and a draft step every token has logits, of a prompt's chunk the last alone.
    """
    samples, form = choice.samples, choice.forms[mapping["form"]].fitted.form
    _points(axes, samples, samples.batched, samples.seconds * MS)
    tokens = np.unique(np.rint(np.geomspace(1, samples.batched.max(), 300)))
    stepped = "verify" if role == "target" else "draft"
    for kind, logits, pairs in ((stepped, tokens, tokens), ("prefill", 1, tokens * (tokens + 1) / 2)):
        seconds = form.seconds_array(PassShapes(0, tokens, pairs, logits, 0, 0))
        axes.plot(tokens, seconds * MS, color=INK[kind], lw=1.2, label=f"form, {kind}, no context")
    ridge = mapping["checks"]["knee_tokens"][role]["fitted"]
    if ridge is not None and 1 <= ridge <= tokens[-1]:
        axes.axvline(ridge, color="0.4", lw=0.9, ls="--", label=f"ridge {ridge:.0f}")
    axes.set_xlabel("batched tokens")
    axes.set_ylabel("pass (ms)")
    axes.legend(fontsize=8, frameon=False)
