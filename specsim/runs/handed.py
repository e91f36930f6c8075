"""Objects that Python hands in: they stand in the place of what a configuration describes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, is_dataclass
from hashlib import sha256
from types import ModuleType
from typing import Any

from specsim.errors import SpecsimError, represented
from specsim.latency.model import Profile
from specsim.replica.blame import complaint, own_line
from specsim.runs.handed_trace import HandedTrace, handed_trace
from specsim.schedulers.loading import SchedulerFactory
from specsim.workload.slo import SloMix, check_mix
from specsim.workload.user_file import content_sha256


@dataclass(frozen=True, slots=True)
class Handed:
    """What was handed in; None where the configuration describes it."""

    scheduler: SchedulerFactory | None = None
    trace: HandedTrace | None = None
    profile: Profile | None = None
    slo: SloMix | None = None

    @property
    def described(self) -> dict[str, dict[str, Any]]:
        """By group, what a run's configuration holds in the place of a file's keys: class and checksum of content."""
        found: dict[str, dict[str, Any]] = {}
        if self.scheduler is not None:
            found["scheduler"] = _said(self.scheduler.example, _content(self.scheduler.example))
        if self.trace is not None:
            found["trace"] = _trace_said(self.trace)
        if self.profile is not None:
            found["profile"] = _said(self.profile, _content(self.profile)) | {"name": self.profile.name}
        if self.slo is not None:
            found["slo"] = _said(self.slo, _content(self.slo))
        return found

    @property
    def choices(self) -> dict[str, str]:
        """By group, what names the object: no file has such a name."""
        return {group: f"<{said['object'].rpartition('.')[2]}>" for group, said in self.described.items()}

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The loaded modules outside specsim that the scheduler rests on."""
        if self.scheduler is None:
            return ()
        name = type(self.scheduler.example).__module__
        known = name in sys.modules and name.partition(".")[0] != "specsim"
        return (sys.modules[name],) if known else ()

    @property
    def note(self) -> str | None:
        """A line about what was handed in, None where nothing was."""
        listed = ", ".join(f"{group} ({said['object']})" for group, said in self.described.items())
        return f"given as an object: {listed}; config.yaml names it and cannot make it again" if listed else None

    def check_new(self, holds_run: bool, folder: object) -> None:
        """Refuse a folder that holds a run, where an object's content cannot be told from another's."""
        unknown = [group for group, said in self.described.items() if said["sha256"] is None]
        if holds_run and unknown:
            raise SpecsimError(
                f"out={folder}: holds a run, and whether its {unknown[0]} was this object cannot be told; "
                "expected a new folder"
            )


NOTHING = Handed()


def handed(given: Mapping[str, object], of_trace: Mapping[str, Any]) -> Handed:
    """Return the objects among settings by group; `of_trace` are the settings that go with the trace.

    Raises
    ------
    SpecsimError
        One line for an object that does not stand for its group.
    """
    found: dict[str, Any] = {}
    if "scheduler" in given:
        found["scheduler"] = _scheduler(given["scheduler"])
    if "trace" in given:
        found["trace"] = handed_trace(given["trace"], of_trace)
    for group, wanted in (("profile", Profile), ("slo", SloMix)):
        if group in given:
            if not isinstance(given[group], wanted):
                expected = f"expected a name, a path or a {wanted.__name__}"
                raise SpecsimError(f"{group}: {represented(given[group])}; {expected}")
            found[group] = given[group]
    if "slo" in found:
        check_mix(found["slo"])
    return Handed(**found)


def _scheduler(given: Any) -> SchedulerFactory:
    """Return what makes a fresh scheduler: a factory, or copies of an instance."""
    is_instance = callable(getattr(given, "step", None)) and not isinstance(given, type)
    if not is_instance and not callable(given):
        lacks = "" if type(given).__module__ == "builtins" else " has no step(view) method"
        raise SpecsimError(
            f"scheduler: {represented(given)}{lacks}; expected a name, a path, a scheduler, or what makes one"
        )
    factory = (lambda: deepcopy(given)) if is_instance else given
    try:
        made = factory()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        inside = error.__traceback__ and error.__traceback__.tb_next
        where = own_line(inside, given)
        hint = "" if is_instance else "; expected a scheduler, or what makes one when called without arguments"
        raise SpecsimError(f"scheduler: {represented(given)}: {complaint(error)}{where}{hint}") from error
    if not callable(getattr(made, "step", None)):
        raise SpecsimError(f"scheduler: {represented(given)} makes {represented(made)}, which has no step(view) method")
    return SchedulerFactory(factory, made)


def _said(given: object, content: str | None) -> dict[str, Any]:
    return {"object": _named(type(given)), "sha256": content}


def _trace_said(given: HandedTrace) -> dict[str, Any]:
    said = {"object": _named(given.kind), "sha256": content_sha256(given.trace), "name": given.trace.source.name}
    return {**said, **given.taken}


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _content(given: object) -> str | None:
    """Return the checksum of an object's fields, None where some are no plain values."""
    try:
        fields = asdict(given) if is_dataclass(given) and not isinstance(given, type) else vars(given)
        return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    except Exception:
        return None
