"""What the seed of a run draws anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.workload.load import trace_recipe
from specsim.workload.slo import SloMix, mix_from_mapping

DRAWN = ("arrivals", "lengths", "classes", "acceptance")


def varies(drawn: Set[str], mix: SloMix, *, names_classes: bool) -> tuple[str, ...]:
    """Return which of `DRAWN` change with the seed of a run, in that order.

    Parameters
    ----------
    drawn : what the seed draws of the trace. names_classes : whether the trace names the class of each request.

    Classes that the trace names vary only if the seed draws them. ``acceptance`` is named even if the scheduler never
    drafts.
    """
    stay = not mix.classes or (names_classes and not mix.redraw_classes)
    classes = "classes" in drawn if stay else len(mix.classes) > 1
    found = {*(drawn - {"classes"}), *(("classes",) if classes else ()), "acceptance"}
    return tuple(each for each in DRAWN if each in found)


def varies_with_seed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return `varies` for a stored configuration whose run did not record it.

    The trace is read again. A trace that is gone is taken to name no classes. A kind of one's own is not built here: of
    such a trace only the acceptance is known to vary.
    """
    entry = config["trace"]
    if "kind" not in entry:
        return DRAWN[-1:]
    names_classes = _names_classes(json.dumps(entry), _changed_ns(entry))
    return varies(trace_recipe(entry).drawn, mix_from_mapping(config["slo"], "slo"), names_classes=names_classes)


def _changed_ns(entry: Mapping[str, Any]) -> int:
    file = Path(entry.get("path", "")).expanduser()
    return file.stat().st_mtime_ns if file.is_file() else 0


@lru_cache(maxsize=8)
def _names_classes(entry: str, changed_ns: int) -> bool:
    """Return whether the trace of an `entry` (JSON) names the class of each request; cached until its file changes."""
    recipe = trace_recipe(json.loads(entry))
    if recipe.reader.drawn:
        return False
    try:
        return recipe.trace(0).slo_class is not None
    except SpecsimError:
        return False
