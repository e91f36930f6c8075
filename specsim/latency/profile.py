"""Reading a profile's YAML: every key is checked here, and a mistake is one line that names it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from specsim.errors import SpecsimError, nearest
from specsim.latency.forms import Form, Linear, Roofline, Table
from specsim.latency.model import PROFILE_VERSION, ModelLatency, Profile

__all__ = ["PROFILE_VERSION", "ModelLatency", "Profile", "load_profile", "profile_from_mapping"]

TOP_KEYS = (
    "name",
    "profile_version",
    "description",
    "hardware",
    "gpus",
    "memory_bytes",
    "form",
    "target",
    "draft",
)
TOP_OPTIONS = ("baseline_s", "usable_kv_bytes", "checks", "provenance", "assumptions")
MODEL_KEYS = ("name", "kv_bytes_per_token", "weights_bytes", "overhead_s", "forms")
MODEL_OPTIONS = ("standard_errors", "valid", "held_out_error", "launch_s")
LINEAR_KEYS = ("alpha_s", "gamma_s", "delta_s")
ROOFLINE_KEYS = ("delta_s", "gamma_s", "compute_delta_s", "compute_s", "alpha_s", "beta_s")
ROOFLINE_OPTIONS = ("single_s", "pair_s")
TABLE_KEYS = ("batched_tokens", "seconds_at", "floor_s")


@dataclass(frozen=True, slots=True)
class Node:
    """A mapping of the file, where it stands (`key`, dotted) and in which file, for error messages."""

    source: str
    key: str
    values: Mapping[str, Any]

    def path(self, name: str) -> str:
        """Return the dotted key of an entry."""
        return f"{self.key}.{name}" if self.key else name

    def fail(self, name: str, expected: str) -> NoReturn:
        """Refuse the value of an entry."""
        value = self.values.get(name)
        raise SpecsimError(f"{self.source}: {self.path(name)}: {_shown(value)} is not {expected}")

    def only(self, required: Iterable[str], optional: Iterable[str] = ()) -> None:
        """Refuse unknown and missing keys."""
        needed = tuple(required)
        known = (*needed, *optional)
        for name in self.values:
            if name not in known:
                raise SpecsimError(f"{self.source}: {self.path(str(name))}: unknown key{nearest(str(name), known)}")
        for name in needed:
            if name not in self.values:
                raise SpecsimError(f"{self.source}: {self.path(name)}: missing key")

    def text(self, name: str) -> str:
        """Return a string that is not empty."""
        value = self.values[name]
        return value if isinstance(value, str) and value.strip() else self.fail(name, "a line of text")

    def whole(self, name: str, least: int) -> int:
        """Return a whole number not below `least`."""
        value = self.values[name]
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self.fail(name, f"a whole number of at least {least}")

    def number(self, name: str) -> float:
        """Return a finite number not below zero."""
        value = self.values[name]
        return float(value) if _is_amount(value) else self.fail(name, "a finite number of at least 0")

    def numbers(self, name: str, least: int) -> tuple[float, ...]:
        """Return at least `least` finite numbers not below zero."""
        value = self.values[name]
        if isinstance(value, list | tuple) and len(value) >= least and all(map(_is_amount, value)):
            return tuple(float(each) for each in value)
        self.fail(name, f"a list of at least {least} finite numbers of at least 0")

    def child(self, name: str) -> Node:
        """Return the mapping below a key."""
        value = self.values[name]
        if not isinstance(value, Mapping):
            self.fail(name, "a mapping")
        return Node(self.source, self.path(name), value)


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def _shown(value: object) -> str:
    line = " ".join(repr(value).split())
    return line if len(line) <= 60 else line[:57] + "..."


def load_profile(path: Path) -> Profile:
    """Read the profile in `path`; `SpecsimError` when the file cannot be read or a key is wrong."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        mapping = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except FileNotFoundError:
        raise SpecsimError(f"{path}: no such profile file{_beside(path)}") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SpecsimError(f"{path}{line}: not YAML: {_first_line(error.problem)}") from None
    except (OSError, UnicodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise SpecsimError(f"{path}: cannot be read as YAML: {_first_line(error)}") from None
    if not isinstance(mapping, Mapping):
        raise SpecsimError(f"{path}: {_shown(mapping)} is not a mapping of profile keys")
    return profile_from_mapping(mapping, str(path))


def _first_line(problem: object) -> str:
    return (str(problem).splitlines() or ["unreadable"])[0]


def _beside(path: Path) -> str:
    names = [each.name for each in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    return nearest(path.name, names) if names else ""


def profile_from_mapping(mapping: Mapping[Any, Any], source: str) -> Profile:
    """Build a profile from the keys of its file; `source` names the file in errors.

    ``form`` chooses the form of both models; a model that holds a single form keeps that one.
    """
    top = Node(source, "", mapping)
    if mapping.get("profile_version", PROFILE_VERSION) != PROFILE_VERSION:
        top.fail("profile_version", f"{PROFILE_VERSION}, the version that this specsim reads")
    top.only(TOP_KEYS, TOP_OPTIONS)
    target, draft = top.child("target"), top.child("draft")
    wanted = _form_name(top, (_forms(target), _forms(draft)))
    profile = Profile(
        name=top.text("name"),
        version=top.whole("profile_version", PROFILE_VERSION),
        description=top.text("description"),
        hardware=top.text("hardware"),
        gpus=top.whole("gpus", 1),
        memory_bytes=top.whole("memory_bytes", 1),
        target=_model(target, wanted),
        draft=_model(draft, wanted),
        stated_baseline_s=_stated_baseline(top),
        stated_usable_kv_bytes=top.whole("usable_kv_bytes", 1) if "usable_kv_bytes" in mapping else None,
        provenance=_provenance(top),
        assumptions=_assumptions(top),
    )
    if profile.usable_kv_bytes <= 0:
        top.fail("memory_bytes", "enough: 0.9 of it must exceed both models' weights_bytes")
    if profile.baseline_s <= 0:
        raise SpecsimError(f"{source}: target.forms.{profile.target.form}: a pass of one token takes no time")
    return profile


def _stated_baseline(top: Node) -> float | None:
    if "baseline_s" not in top.values:
        return None
    return top.number("baseline_s") or top.fail("baseline_s", "a finite number above 0")


def _form_name(top: Node, held: tuple[Node, Node]) -> str:
    """Return the form asked for: some model holds it, and a model without it holds a single other."""
    wanted = top.text("form")
    if wanted not in _FORMS:
        raise SpecsimError(f"{top.source}: form: {wanted!r} is no form{nearest(wanted, _FORMS)}")
    names = [tuple(node.values) for node in held]
    if wanted not in names[0] + names[1] or any(wanted not in each and len(each) > 1 for each in names):
        offered = ", ".join(sorted({*names[0], *names[1]}))
        raise SpecsimError(f"{top.source}: form: {wanted!r} is not in this profile; valid: {offered}")
    return wanted


def _forms(node: Node) -> Node:
    node.only(MODEL_KEYS, MODEL_OPTIONS)
    held = node.child("forms")
    held.only((), _FORMS)
    return held if held.values else node.fail("forms", "a mapping of at least one form")


def _model(node: Node, wanted: str) -> ModelLatency:
    held = node.child("forms")
    forms = {name: _FORMS[name](held.child(name)) for name in held.values}
    form = wanted if wanted in forms else next(iter(forms))
    return ModelLatency(
        name=node.text("name"),
        forms=forms,
        form=form,
        kv_bytes_per_token=node.whole("kv_bytes_per_token", 1),
        weights_bytes=node.whole("weights_bytes", 0),
        overhead_s=node.number("overhead_s"),
        fit_error=_held_out_error(node, form),
        launch_s=node.number("launch_s") if "launch_s" in node.values else None,
        **_ranges(node),
    )


def _ranges(node: Node) -> dict[str, Any]:
    if "valid" not in node.values:
        return {}
    valid = node.child("valid")
    valid.only(("context_tokens", "batched_tokens"))
    ranges = {}
    for name in ("context_tokens", "batched_tokens"):
        low_high = valid.numbers(name, 2)
        if len(low_high) != 2 or low_high[0] > low_high[1]:
            valid.fail(name, "a range [low, high]")
        ranges[name.replace("tokens", "range")] = low_high
    return ranges


def _held_out_error(node: Node, form: str) -> dict[str, dict[str, float]]:
    if "held_out_error" not in node.values:
        return {}
    by_form = node.child("held_out_error")
    by_form.only((), _FORMS)
    kinds = {name: by_form.child(name) for name in by_form.values}
    read = {
        name: {kind: {each: of.child(kind).number(each) for each in of.child(kind).values} for kind in of.values}
        for name, of in kinds.items()
    }
    return read.get(form, {})


def _provenance(top: Node) -> tuple[Mapping[str, str], ...]:
    entries = top.values.get("provenance", ())
    if not isinstance(entries, list | tuple) or not all(isinstance(each, Mapping) for each in entries):
        top.fail("provenance", "a list of mappings")
    return tuple({str(key): str(value) for key, value in each.items()} for each in entries)


def _assumptions(top: Node) -> tuple[str, ...]:
    entries = top.values.get("assumptions", ())
    if not isinstance(entries, list | tuple) or not all(isinstance(each, str) for each in entries):
        top.fail("assumptions", "a list of lines of text")
    return tuple(entries)


def _linear(node: Node) -> Linear:
    node.only(LINEAR_KEYS)
    return Linear(**{name: node.number(name) for name in LINEAR_KEYS})


def _roofline(node: Node) -> Roofline:
    node.only(ROOFLINE_KEYS, ("tile_tokens", *ROOFLINE_OPTIONS))
    tile = node.whole("tile_tokens", 1) if "tile_tokens" in node.values else 1
    given = [*ROOFLINE_KEYS, *(name for name in ROOFLINE_OPTIONS if name in node.values)]
    form = Roofline(**{name: node.number(name) for name in given}, tile_tokens=tile)
    if form.single_s and form.seconds(0, 1, 0) <= 0:
        node.fail("single_s", "less than a pass of one token takes without it")
    return form


def _table(node: Node) -> Table:
    node.only(TABLE_KEYS)
    tokens, seconds = node.numbers("batched_tokens", 2), node.numbers("seconds_at", 2)
    if any(after <= before for before, after in pairwise(tokens)):
        node.fail("batched_tokens", "strictly rising")
    if len(seconds) != len(tokens):
        node.fail("seconds_at", f"{len(tokens)} numbers, one for each of batched_tokens")
    if any(after < before for before, after in pairwise(seconds)):
        node.fail("seconds_at", "rising: a larger pass takes no less time")
    return Table(tokens, seconds, node.number("floor_s"))


_FORMS: dict[str, Callable[[Node], Form]] = {"roofline": _roofline, "linear": _linear, "table": _table}
