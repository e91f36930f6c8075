"""From words as typed, key=value, to the points that they span; nothing is looked up or opened here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache

from specsim.errors import SpecsimError, first_line, nearest
from specsim.paths import is_path, shipped

GROUPS = ("scheduler", "trace", "slo", "acceptance", "profile", "drafter")
TEXTS = ("belief", "out")
"""Keys whose values are names or paths and never pass through Hydra's grammar, as those of the groups."""

Point = Mapping[str, str]
"""Key to value, as typed."""


def points(words: Sequence[str], *, sweep: bool) -> list[dict[str, str]]:
    """Return the points that the words span, one without commas; the last word runs fastest.

    Raises
    ------
    SpecsimError
        For a word that is no ``key=value``, an unknown key, a key given twice, and several values when `sweep` is
        False.
    """
    axes: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.removeprefix("+").partition("=")
        if not equals or not key:
            raise SpecsimError(f"{word!r} is no setting; expected key=value")
        if key in axes:
            raise SpecsimError(f"{key}: given twice; expected one value, or -m {key}=a,b for a sweep")
        check_key(key)
        axes[key] = _values(key, value, word, sweep)
    return product(axes)


def product(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of the values of each key, the last key fastest.

    Raises
    ------
    SpecsimError
        When a key has no value, or one value twice.
    """
    for key, values in axes.items():
        if len(set(values)) < len(values):
            twice = next(value for value in values if list(values).count(value) > 1)
            raise SpecsimError(f"{key}={twice}: stands twice in the sweep")
        if not values:
            raise SpecsimError(f"{key}: expected at least one value")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _values(key: str, value: str, word: str, sweep: bool) -> list[str]:
    if key == "out" and ((sweep and "," in value) or value[:1] in ("[", "{") or value in ("true", "false", "")):
        raise SpecsimError(f"{word!r}: expected one folder")
    if key in GROUPS or key in TEXTS:
        several = value.split(",") if key != "out" and (sweep or not is_path(value)) else [value]
        if len(several) == 1:
            return several
    else:
        several = _parsed(word, key, value)
    if len(several) > 1 and not sweep:
        raise SpecsimError(f"{word!r} holds {len(several)} values; expected one, or -m for a sweep")
    return several


def _parsed(word: str, key: str, value: str) -> list[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"{key}={value}")
        return list(override.sweep_string_iterator()) if override.is_sweep_override() else [value]
    except (HydraException, ValueError, TypeError, NotImplementedError) as error:
        raise SpecsimError(f"{word!r} cannot be read: {first_line(error)}") from None


def check_key(key: str) -> None:
    """Refuse a key that no run has.

    Raises
    ------
    SpecsimError
        One line with the nearest valid key.
    """
    known = _known_keys()
    head, *rest = key.split(".")
    if head not in known:
        raise SpecsimError(f"{key}: unknown key{nearest(head, known)}")
    if head not in GROUPS and (rest or known[head]) and rest not in [[each] for each in known[head]]:
        raise SpecsimError(f"{key}: unknown key{nearest('.'.join(rest), known[head])}")


@cache
def _known_keys() -> dict[str, tuple[str, ...]]:
    import yaml

    base = yaml.safe_load((shipped("conf") / "config.yaml").read_text(encoding="utf-8"))
    base.pop("defaults")
    known = {key: tuple(value) if isinstance(value, dict) else () for key, value in base.items()}
    return known | dict.fromkeys(GROUPS, ())
