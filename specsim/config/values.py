"""Values of settings: what a text spans, and values that only Python can hand over.

A mistake is a SpecsimError of one line that names the setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from specsim.errors import SpecsimError, first_line, nearest

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True, slots=True)
class PythonValue:
    """A plain value (None, truth value, number, text, list, mapping); its text is only shown."""

    value: Any

    def __str__(self) -> str:
        return _word(self.value)


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_word(each)}" for key, each in value.items()) + "}"
    return str(value)


def python_value(name: str, value: object) -> PythonValue:
    """Return a value given in Python as a plain one."""
    try:
        made = PythonValue(_as_plain(value))
        str(made)
    except Exception as error:
        what = f"{type(value).__name__} that cannot be written as text"
        names = "names of classes in plugins=, as 'module.Class'; classes themselves stand beside the axes"
        expected = names if name == "observers" else "a setting"
        raise SpecsimError(f"{name}: a {what} ({first_line(error)}); expected {expected}") from None
    return made


def _as_plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.floating):
        # A short float means the shortest decimal that it is written as: 0.1, not 0.10000000149.
        return float(str(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _as_plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) > 0:
        return [_as_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} is no number, text, list or mapping")


FUNCTION = re.compile(r"(choice|glob|interval|range|shuffle|sort|tag) ?\(.*\)")
SHORT_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})")
"""Texts that Hydra's grammar, which takes a hundred times as long, reads as a whole number, too."""
SHORT_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,14}")
"""The same of a number with a point, as drawn for a sweep."""
OPEN, CLOSED = "([{", ")]}"
BEYOND_EXACT = 2.0**53
MOST_VALUES = 100_000


def value_of(setting: str, text: str) -> Any:
    """Return what a text means: a number, a truth value, None, a list, a mapping, or itself."""
    if SHORT_WHOLE.fullmatch(text):
        return int(text)
    if SHORT_DECIMAL.fullmatch(text):
        return float(text)
    override = _parsed(setting, text)
    if override.is_sweep_override():
        raise SpecsimError(f"{setting}: holds several values; expected one")
    return override.value()


def fitting(setting: str, given: str | PythonValue, old: Any) -> Any:
    """Return what a text or a value from Python means in the place of an `old` value.

    Quotes make text of a number only where text stood. A number such as 1e3 or 100.0 is the whole number that it is,
    where no other number stood; in a mapping, where none stood under its key.
    """
    return _whole(given.value if isinstance(given, PythonValue) else _of_text(setting, given, old), old)


def _of_text(setting: str, text: str, old: Any) -> Any:
    value = value_of(setting, text)
    if not isinstance(value, str) or (isinstance(old, str) and not _is_open(old)):
        return value
    if value == "None":
        raise SpecsimError(f"{setting}: expected null for none")
    inner = _meaning(value) if is_quoted(text) else value
    return value if isinstance(inner, str) else inner


def _whole(value: Any, old: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(old, Mapping):
        return {key: _whole(each, old.get(key)) for key, each in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) < BEYOND_EXACT:
        return int(value) if _is_open(old) or (isinstance(old, int) and not isinstance(old, bool)) else value
    return value


def several(setting: str, text: str) -> list[str]:
    """Return the values that a text spans, one unless it holds commas or a function of Hydra's sweeps."""
    override = _parsed(setting, text)
    return [text] if not override.is_sweep_override() else list(_spanned(setting, override, _written))


OUTSIDE_A_LIST = re.compile(r",(?![^\[]*\])")
"""A comma that parts names, not the numbers of one list."""


def several_names(setting: str, text: str, names: Callable[[], Sequence[str]], *, split: bool) -> list[str]:
    """Return the names or paths that a text spans; glob() picks among `names`, commas part where `split` is set.

    Names and paths need no quotes: the text between commas is taken as it is.
    """
    if FUNCTION.fullmatch(text):
        override = _parsed(setting, text)
        if override.is_sweep_override():
            return list(_spanned(setting, override, _plain, names))
    if is_quoted(text) and text[0] not in text[1:-1]:
        return [text[1:-1]]
    found = [unquoted(each.strip()) for each in (OUTSIDE_A_LIST.split(text) if split else [text])]
    if "" in found:
        _unreadable(setting, text, "")
    return found


def interval_of(setting: str, text: str) -> tuple[float, float, bool] | None:
    """Return the bounds of ``interval(low,high)`` and whether it is tagged ``log``; None for any other text.

    The bounds are whole numbers, both included, in ``int(interval(low,high))``.

    Raises
    ------
    SpecsimError
        One line that names the `setting`, where an interval is empty, or a tagged one is not above 0.
    """
    from hydra.core.override_parser.types import IntervalSweep

    override = _parsed(setting, text)
    found = override.value() if override.is_sweep_override() else None
    if not isinstance(found, IntervalSweep):
        return None
    low, high, even = found.start, found.end, "log" in found.tags
    if low is None or high is None or not low < high or (even and low <= 0):
        above = " above 0" if even else ""
        raise SpecsimError(f"{setting}: expected two numbers{above}, the smaller first")
    return low, high, even


def is_quoted(text: str) -> bool:
    """Return whether one pair of quotes is around the whole text."""
    return len(text) > 1 and text[0] == text[-1] and text[0] in "'\""


def unquoted(text: str) -> str:
    """Return a text without the pair of quotes around it."""
    return text[1:-1] if is_quoted(text) else text


def _meaning(text: str) -> Any:
    try:
        return value_of("", text)
    except SpecsimError:
        return text


def _is_open(old: Any) -> bool:
    """Return whether what stands there does not tell its kind: a null or a gap."""
    return old is None or old == "???"


def _parsed(setting: str, text: str) -> Override:
    from hydra.errors import HydraException

    if not text:
        raise SpecsimError(f"{setting}: no value; expected one, or null for none")
    try:
        override = _override(text)
        # One that spans several values is read anew: it changes when they are drawn.
        return _override.__wrapped__(text) if override.is_sweep_override() else override
    except (HydraException, ValueError, TypeError, NotImplementedError, RecursionError) as error:
        _unreadable(setting, text, first_line(error))


@lru_cache(maxsize=1024)
def _override(text: str) -> Override:
    """Return what Hydra's grammar reads in a text; kept, since the points of a sweep repeat most of theirs."""
    override: Override = _parser().parse_override(f"x={_home_quoted(_keys_bare(text))}")
    return override


@cache
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def _keys_bare(text: str) -> str:
    """Take the quotes from plain keys of a mapping, as JSON writes them: Hydra's grammar has none there."""
    return re.sub(r"""([{,]\s*)(["'])([\w.-]+)\2(?=\s*:)""", r"\1\3", text) if text[:1] in ("{", "[") else text


def _home_quoted(text: str) -> str:
    """Quote what begins with a tilde, as ~/mine.py does: Hydra's grammar has no such sign outside quotes."""
    return text if "'" in text or '"' in text else re.sub(r"(^|[\[,:]\s*)(~[^\s\[\],(){}]*)", r"\1'\2'", text)


def _unreadable(setting: str, text: str, said: str) -> NoReturn:
    if re.search(r"(^|[\[(,])\s*,|,\s*$", text):
        why = "there is nothing beside a comma"
    elif sum(map(text.count, OPEN)) != sum(map(text.count, CLOSED)) or text.count('"') % 2 or text.count("'") % 2:
        why = "a bracket or a quote has no partner"
    elif "Unknown function" in said:
        why = "no such function; expected choice(), range(), glob() or a list with commas"
    elif "while evaluating" in said:
        why = said.partition(": ")[2] or said
    else:
        why = f"""expected a number, a name, [a, b] or {{key: value}}; quote other text: "'{text[:40]}'\""""
    raise SpecsimError(f"{setting}: cannot be read: {why}")


def _spanned(
    setting: str, override: Override, write: Callable[[Any], str], names: Callable[[], Sequence[str]] | None = None
) -> Iterator[str]:
    from hydra.core.override_parser.types import Glob, IntervalSweep, RangeSweep, Sweep

    value = override.value()
    if any(isinstance(each, Sweep | Glob) for each in getattr(value, "list", ())):
        raise SpecsimError(f"{setting}: a function stands among the values; expected it alone, or values alone")
    if isinstance(value, IntervalSweep):
        raise SpecsimError(
            f"{setting}: interval() is for an optimising sweeper, which specsim has none of; expected range(a,b,step)"
        )
    if getattr(value, "shuffle", False):
        raise SpecsimError(f"{setting}: shuffle() changes nothing: points do not depend on their order")
    if isinstance(value, Glob):
        if names is None:
            raise SpecsimError(f"{setting}: glob() picks among the names of a group; expected values")
        return iter(_globbed(setting, value, names()))
    if isinstance(value, RangeSweep):
        return map(str, _range(setting, value.start, value.stop, value.step))
    return map(write, override.sweep_iterator())


def _globbed(setting: str, glob: Any, names: Sequence[str]) -> list[str]:
    found: list[str] = glob.filter(list(names))
    if not found:
        files = "; files are listed with commas" if "/" in setting else ""
        raise SpecsimError(f"{setting}: matches no name{files}{nearest('', names)}")
    exclude, glob.exclude = glob.exclude, []
    if exclude and glob.filter(list(names)) == found:
        raise SpecsimError(f"{setting}: {exclude} excludes nothing; several patterns are one list: glob([a*,b*])")
    return found


def _range(setting: str, start: Any, stop: Any, step: Any) -> list[Any]:
    """Return start, start + step, ... before stop, in decimals where one is no whole number: 0.3, not 0.30...04."""
    whole = all(isinstance(each, int) for each in (start, stop, step))
    low, high, by = (Decimal(str(each)) for each in (start, stop, step))
    if not (by and (high - low).is_finite()):
        raise SpecsimError(f"{setting}: expected finite bounds and a step that is not 0")
    count = ceil((high - low) / by)
    if not 0 < count <= MOST_VALUES:
        raise SpecsimError(f"{setting}: spans {max(0, count)} values; expected 1 to {MOST_VALUES}")
    return [(int if whole else float)(low + by * place) for place in range(count)]


def _written(value: Any) -> str:
    from hydra.core.override_parser.types import Override

    return Override._get_value_element_as_str(value)


def _plain(value: Any) -> str:
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, str):
        return value
    return value.text if isinstance(value, QuotedString) else _written(value)
