"""A trace that Python hands in, and the settings below `trace` that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from specsim.config.plain import python_value
from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping
from specsim.workload import entry as keys
from specsim.workload.trace import Trace
from specsim.workload.user_file import trace_of

OF_COLUMNS = ("time_unit", "tick_s")
"""Settings that tell how the columns of a DataFrame are read."""
OF_TRACES = ("window", "resample")
"""Settings of what is taken from any trace."""
BELOW = "trace__"


class HandedTrace(NamedTuple):
    """A trace, the kind of object that was given, and by key what is taken from it."""

    trace: Trace
    kind: type
    taken: Mapping[str, Any]


def settings_of_trace(given: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return by key the settings that go with this object as a trace, and all others."""
    known = OF_TRACES if isinstance(given, Trace) else (*OF_TRACES, *OF_COLUMNS)
    names = {BELOW + key: key for key in known}
    values = {
        key: python_value(f"trace.{key}", settings[name]).value for name, key in names.items() if name in settings
    }
    return values, {name: value for name, value in settings.items() if name not in names}


def handed_trace(given: Any, below: Mapping[str, Any]) -> HandedTrace:
    """Return a `Trace` as it is, and that of a DataFrame read with the settings `below`.

    Raises
    ------
    SpecsimError
        One line for what is neither, damaged columns, or a setting that does not fit.
    """
    node = CheckedMapping("", "trace", below)
    keys.window(node), keys.resample(node)
    taken = {key: value for key, value in below.items() if key in OF_TRACES and value is not None}
    if isinstance(given, Trace):
        return HandedTrace(given, type(given), taken)
    if not hasattr(given, "columns"):
        raise SpecsimError(f"trace: {represented(given)}; expected a name, a path, a Trace or a DataFrame")
    read = trace_of(given, time_unit=below.get("time_unit"), tick_s=below.get("tick_s"))
    return HandedTrace(read, type(given), taken)
