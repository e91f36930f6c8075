"""Objects from Python in place of a group's choice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from specsim.config.groups import Choices
from specsim.config.points import HANDED, is_several
from specsim.config.schema import GROUPS
from specsim.config.values import python_value
from specsim.core.protocols import Observer
from specsim.core.user_code import complaint, own_line, own_modules
from specsim.errors import SpecsimError, represented, with_article
from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.latency.model import Profile
from specsim.schedulers.loading import SchedulerFactory, check_properties
from specsim.workload import entry as keys
from specsim.workload.slo import SloMix, check_mix
from specsim.workload.trace import Trace
from specsim.workload.user_file import content_sha256, of_columns

OF_COLUMNS = ("time_unit", "tick_s", "turns")
"""Settings that tell how the columns of a DataFrame are read."""
OF_TRACES = ("window", "resample")
"""Settings of what is taken from any trace."""
BELOW = "trace__"
OBSERVERS = "observers"


def settings_of_trace(given: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return by key the settings that go with this object as a trace, and all others."""
    known = OF_TRACES if isinstance(given, Trace) else (*OF_TRACES, *OF_COLUMNS)
    names = {BELOW + key: key for key in known}
    values = {
        key: python_value(f"trace.{key}", settings[name]).value for name, key in names.items() if name in settings
    }
    return values, {name: value for name, value in settings.items() if name not in names}


def handed_trace(given: Any, below: Mapping[str, Any]) -> Trace:
    """Return a `Trace` as it is, and that of a DataFrame read with the settings `below`.

    Raises
    ------
    SpecsimError
        One line for what is neither, damaged columns, or a setting that does not fit.
    """
    node = CheckedMapping("", "trace", below)
    keys.window(node), keys.resample(node)
    if isinstance(given, Trace):
        return given
    if not hasattr(given, "columns"):
        raise SpecsimError(f"trace: {represented(given)}; expected a name, a path, a Trace or a DataFrame")
    return of_columns(given, "DataFrame", {key: below.get(key) for key in OF_COLUMNS}, unit_open=True)


@dataclass(frozen=True, slots=True)
class Handed:
    """Objects that were handed in; None where the configuration describes it.

    `described` is by group what a run's configuration holds in the place of a file's keys: class and checksum of
    content, None where that is not known. `observers` make those of the run by the names that stand for them, and
    `observing` are the names of their modules outside specsim.
    """

    scheduler: SchedulerFactory | None = None
    trace: Trace | None = None
    profile: Profile | None = None
    slo: SloMix | None = None
    described: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    observers: Mapping[str, Callable[[], Observer]] = field(default_factory=dict)
    observing: frozenset[str] = frozenset()

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The modules outside specsim that scheduler and observers rest on, an empty one for one not loaded."""
        names = self.observing | (set() if self.scheduler is None else own_modules(self.scheduler.example))
        return tuple(sys.modules.get(name) or ModuleType(name) for name in sorted(names))

    @property
    def note(self) -> str | None:
        """A line about what was handed in, None where nothing was."""
        listed = ", ".join(f"{group} ({said['object']})" for group, said in self.described.items())
        return f"given as an object: {listed}; config.yaml names it and cannot make it again" if listed else None

    def check_known(self, folder: object) -> None:
        """Refuse a folder, which holds a run, where an object's content cannot be told from another's."""
        unknown = [group for group, said in self.described.items() if said["sha256"] is None]
        if unknown:
            raise SpecsimError(
                f"out={folder}: holds a run, and whether its {unknown[0]} was this object cannot be told; "
                "expected a new folder, or an object whose attributes are plain values"
            )


NOTHING = Handed()


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that Python handed in, by group and by the name that stands for each: no file has such a name.

    The `observers` are those of every run.
    """

    named: dict[str, dict[str, Handed]] = field(default_factory=dict)
    observers: Handed = NOTHING

    @property
    def described(self) -> dict[str, dict[str, dict[str, Any]]]:
        """By group and name, what a run's configuration holds in the place of a file's keys."""
        return {
            group: {name: each.described[group] for name, each in several.items()}
            for group, several in self.named.items()
        }

    def of(self, chosen: Choices) -> Handed:
        """Return the objects that a run's choices name."""
        names = {group: getattr(chosen, group).name for group in self.named}
        held = {group: self.named[group][name] for group, name in names.items() if name in self.named[group]}
        objects: dict[str, Any] = {group: getattr(each, group) for group, each in held.items()}
        said = {group: each.described[group] for group, each in held.items()}
        return replace(self.observers, **objects, described={**said, **self.observers.described})

    def taken(self, group: str, values: Iterable[object], of_trace: Mapping[str, Any]) -> list[Any]:
        """Return the values of a group with a name in the place of each object, which is kept under it.

        `of_trace` are the settings that go with a trace.

        Raises
        ------
        SpecsimError
            One line for an object that does not stand for its group.
        """
        return [value if isinstance(value, str | Path) else self._keep(group, value, of_trace) for value in values]

    def _keep(self, group: str, value: object, of_trace: Mapping[str, Any]) -> str:
        one, several = _handed(group, value, of_trace), self.named.setdefault(group, {})
        plain, count = one.described[group]["object"].rpartition(".")[2], len(several) + 1
        name = f"<{plain}>" if f"<{plain}>" not in several else f"<{plain}-{count}>"
        several[name] = one
        return name


NO_OBJECTS = Objects()
LEFT_OPEN = frozenset(GROUPS) - {"scheduler", "trace"}
"""Groups whose choice may follow from the others."""


def named(axes: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any], Objects]:
    """Return axes and settings from Python with a name in the place of each object, and the objects by their names.

    Parameters
    ----------
    axes : values by key. settings : a value by key; None leaves a group to the others, but scheduler and trace.

    Raises
    ------
    SpecsimError
        One line for an object that does not stand for its group, or a key below one.
    """
    settings = {key: value for key, value in settings.items() if value is not None or key not in LEFT_OPEN}
    if not isinstance(axes, Mapping):
        raise SpecsimError(f"{shown(axes)}: expected values by key, as {{'scheduler': ['vllm', 'fcfs']}}")
    values = {group: list(axes[group]) for group in HANDED if group in axes and is_several(axes[group])}
    values |= {group: [settings[group]] for group in HANDED if group in settings}
    trace = next((each for each in values.get("trace", ()) if not isinstance(each, str | Path)), None)
    of_trace, settings = ({}, settings) if trace is None else settings_of_trace(trace, settings)
    if of_trace and any(isinstance(each, str | Path) for each in values["trace"]):
        raise SpecsimError(f"trace.{next(iter(of_trace))}: some traces are objects; expected objects or names alone")
    settings, observers = _observing(settings)
    objects = Objects(observers=observers)
    names = {group: objects.taken(group, several, of_trace) for group, several in values.items()}
    for name in (*axes, *settings):
        group, _, below = str(name).partition("__")
        if below and group in objects.named:
            raise SpecsimError(f"{group}.{below}: {group} is an object; expected the value in it")
    axes = {key: names.get(key, value) for key, value in axes.items()}
    return axes, {key: names[key][0] if key in names else each for key, each in settings.items()}, objects


def _handed(group: str, value: Any, of_trace: Mapping[str, Any]) -> Handed:
    if group == "scheduler":
        factory = _scheduler(value)
        return Handed(scheduler=factory, described={group: _said(factory.example)})
    if group == "trace":
        trace = handed_trace(value, of_trace)
        taken = {key: each for key, each in of_trace.items() if key in OF_TRACES and each is not None}
        said = {"object": _named(value), "sha256": content_sha256(trace), "name": trace.source.name}
        return Handed(trace=trace, described={group: {**said, **taken}})
    wanted = Profile if group == "profile" else SloMix
    if not isinstance(value, wanted):
        raise SpecsimError(f"{group}: {represented(value)}; expected a name, a path or {with_article(wanted.__name__)}")
    if isinstance(value, SloMix):
        check_mix(value)
        return Handed(slo=value, described={group: _said(value)})
    return Handed(profile=value, described={group: _said(value) | {"name": value.name, "gpus": value.gpus}})


def _observing(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Handed]:
    """Return settings with a name in the place of each observer that is an object, and those objects."""
    given: Any = settings.get(OBSERVERS)
    makers: dict[str, Callable[[], Observer]] = {}
    names, described, modules = list[Any](), list[dict[str, Any]](), set[str]()
    for each in given if is_several(given) else [given]:
        if callable(getattr(each, "on_pass", None)) and not isinstance(each, type):
            shared = f"{represented(each)}: several runs would share it"
            raise SpecsimError(f"{OBSERVERS}: {shared}; expected its class, {type(each).__name__}")
        name = each
        if callable(each):
            made = _example(OBSERVERS, each, each, "; expected what makes an observer when called without arguments")
            if not callable(getattr(made, "on_pass", None)):
                raise SpecsimError(f"{OBSERVERS}: {represented(each)} makes no object with an on_pass(event) method")
            described.append(said := _said(made))
            name = f"<{said['object']}-{said['sha256'] or str(len(makers)):.12}>"
            # Another maker's object may have the same content.
            name = name if makers.get(name, each) is each else f"{name[:-1]}-{len(names)}>"
            makers[name] = each
            modules |= own_modules([each, made])
        names.append(name)
    if not makers:
        return dict(settings), NOTHING
    known = all(said["sha256"] for said in described)
    content = sha256(json.dumps(described).encode()).hexdigest() if known else None
    said = {"object": ", ".join(each["object"] for each in described), "sha256": content}
    handed = Handed(described={OBSERVERS: said}, observers=makers, observing=frozenset(modules))
    return {**settings, OBSERVERS: names}, handed


def _scheduler(given: Any) -> SchedulerFactory:
    """Return what makes a fresh scheduler: a factory, or copies of an instance."""
    is_instance = callable(getattr(given, "step", None)) and not isinstance(given, type)
    if not is_instance and not callable(given):
        lacks = "" if type(given).__module__ == "builtins" else " has no step(view) method"
        raise SpecsimError(
            f"scheduler: {represented(given)}{lacks}; expected a name, a path, a scheduler, or what makes one"
        )
    factory = (lambda: deepcopy(given)) if is_instance else given
    hint = "" if is_instance else "; expected a scheduler, or what makes one when called without arguments"
    made = _example("scheduler", given, factory, hint)
    check_properties(made, f"scheduler: {represented(given)}")
    if not callable(getattr(made, "step", None)):
        raise SpecsimError(f"scheduler: {represented(given)} makes {represented(made)}, which has no step(view) method")
    return SchedulerFactory(factory, made)


def _example(key: str, given: Any, factory: Callable[[], Any], hint: str) -> Any:
    try:
        return factory()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        inside = error.__traceback__ and error.__traceback__.tb_next
        where = own_line(inside, given)
        raise SpecsimError(f"{key}: {represented(given)}: {complaint(error)}{where}{hint}") from error


def _named(given: object) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"


def _said(given: object) -> dict[str, Any]:
    """Return the class of an object and the checksum of its fields, None where some are no plain values."""
    try:
        content = sha256(_text(_fields(given) if is_dataclass(given) else vars(given)).encode()).hexdigest()
    except Exception:
        content = None
    return {"object": _named(given), "sha256": content}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=lambda given: {"object": _named(given), **_fields(given)})


def _fields(given: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, without those that are no parameters and not set yet: state of a run."""
    if isinstance(given, type):
        raise TypeError(given)
    return {each.name: getattr(given, each.name) for each in fields(given) if each.init or hasattr(given, each.name)}
