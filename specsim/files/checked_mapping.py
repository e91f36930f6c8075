"""Mappings from files: each value is checked, and each error names its key."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from specsim.errors import SpecsimError, nearest


def copied(value: Any) -> Any:
    """Return a value whose mappings and lists no other object holds, as `copy.deepcopy` does in five times the time."""
    if type(value) is dict:
        return {key: copied(each) for key, each in value.items()}
    if type(value) is list:
        return [copied(each) for each in value]
    return value


MOST = 10**9
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""The beginning of an address, such as s3://bucket, also after `pathlib` has taken one of its slashes."""
MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 4096
"""The longest name of a file or folder, and the longest path, on Linux and macOS."""


@dataclass(frozen=True, slots=True)
class CheckedMapping:
    """A mapping, its dotted `key`, and its `source`: a file, or a group and its choice."""

    source: str
    key: str
    values: Mapping[Any, Any]

    def path(self, name: str) -> str:
        """Return the dotted key of an entry; for an empty name the mapping's own key."""
        return ".".join(part for part in (self.key, str(name)) if part)

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise SpecsimError with source, dotted key and problem."""
        said = ": ".join(part for part in (self.source, self.path(name), problem) if part)
        # A key may hold a line break.
        raise SpecsimError(" ".join(said.splitlines()))

    def fail(self, name: str, expected: str) -> NoReturn:
        """Raise SpecsimError with the value of an entry and what was expected."""
        self.refuse(name, f"{shown(self.values.get(name))} is not {expected}")

    def given(self, name: str) -> bool:
        """Return whether an entry exists and is not null."""
        return self.values.get(name) is not None

    def only(self, required: Iterable[str], optional: Iterable[str] = (), labels: Iterable[str] = ()) -> None:
        """Refuse unknown and missing keys; `labels` are keys that no run reads, and no hint names."""
        needed, unread = tuple(required), tuple(labels)
        known = (*needed, *optional)
        for name in self.values:
            if name not in (*known, *unread):
                self.refuse(name, f"unknown key{nearest(str(name), known)}")
        for name in needed:
            if name not in self.values:
                self.refuse(name, "missing key")

    def text(self, name: str, expected: str = "a line of text") -> str:
        """Return a string that is not blank."""
        value = self.values.get(name)
        return value if isinstance(value, str) and value.strip() else self.fail(name, expected)

    def file_name(self, name: str) -> str:
        """Return the name of a file, which leads to no other folder."""
        found = self.text(name, "the name of a file")
        return found if is_file_name(found) else self.fail(name, "the plain name of a file, without a folder")

    def texts(self, name: str, expected: str = "a list of lines of text") -> tuple[str, ...]:
        """Return a list of strings."""
        value = self.values.get(name)
        if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return tuple(value)
        self.fail(name, expected)

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else self.fail(name, "true or false")

    def choice(self, name: str, valid: Iterable[str]) -> str:
        """Return one of the valid names."""
        value, names = self.values.get(name), tuple(valid)
        if name not in self.values:
            self.refuse(name, f"missing key{nearest('', names)}")
        if isinstance(value, str) and value in names:
            return value
        self.refuse(name, f"{shown(value)} is unknown{nearest(str(value), names)}")

    def whole(self, name: str, least: int = 1, most: int = MOST) -> int:
        """Return a whole number between two bounds, both included."""
        value = self.values.get(name)
        return value if is_whole(value, least, most) else self.fail(name, f"a whole number between {least} and {most}")

    def wholes(self, name: str, least: int = 1, most: int = MOST) -> tuple[int, ...]:
        """Return a list of whole numbers, at least one, between two bounds."""
        value = self.values.get(name)
        if isinstance(value, list | tuple) and value and all(is_whole(each, least, most) for each in value):
            return tuple(value)
        self.fail(name, f"a list of whole numbers between {least} and {most}")

    def number(
        self, name: str, *, least: float = 0.0, above: float = -inf, most: float = inf, below: float = inf
    ) -> float:
        """Return a finite number within bounds: `least` and `most` are allowed, `above` and `below` are not.

        With ``least=-inf`` any finite number above `above` is allowed.
        """
        value = self.values.get(name)
        if is_number(value) and least <= value <= most and above < value < below:
            return float(value)
        low = f"above {above:g}" if above >= least else f"of at least {least:g}"
        bounds = [low] if max(least, above) > -inf else []
        bounds += [f"{word} {bound:g}" for word, bound in (("at most", most), ("below", below)) if bound < inf]
        self.fail(name, " ".join(("a finite number", " and ".join(bounds))).strip())

    def numbers(self, name: str, count: int, least: float = 0.0) -> tuple[float, ...]:
        """Return at least `count` finite numbers, none below `least`."""
        value: Any = self.values.get(name)
        enough = isinstance(value, list | tuple) and len(value) >= count
        if enough and all(is_number(each) and each >= least for each in value):
            return tuple(float(each) for each in value)
        bound = f" of at least {least:g}" if least > -inf else ""
        self.fail(name, f"a list of at least {count} finite numbers{bound}")

    def span(self, name: str, expected: str, *, least: float = -inf, empty: bool = False) -> tuple[float, float]:
        """Return (low, high) from a list [low, high] with low < high, or low <= high if it may be `empty`."""
        value = self.values.get(name)
        if isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value)):
            low, high = value
            if least <= low <= high and (low < high or empty):
                return float(low), float(high)
        self.fail(name, expected)

    def child(self, name: str, holds: str = "", least: int = 0) -> CheckedMapping:
        """Return the mapping below a key, of at least `least` entries; `holds` names them in messages."""
        value = self.values.get(name)
        if not isinstance(value, Mapping) or len(value) < least:
            self.fail(name, f"a mapping of {holds}" if holds else "a mapping")
        return CheckedMapping(self.source, self.path(name), value)

    def children(self, name: str, holds: str, each_holds: str = "") -> dict[str, CheckedMapping]:
        """Return the mappings below a key, at least one, by name."""
        held = self.child(name, holds, 1)
        return {str(each): held.child(each, each_holds) for each in held.values}

    def items(self, name: str, holds: str, least: int = 1) -> tuple[CheckedMapping, ...]:
        """Return the mappings in a list, at least `least`."""
        value = self.values.get(name)
        if isinstance(value, list | tuple) and len(value) >= least and all(isinstance(each, Mapping) for each in value):
            return tuple(CheckedMapping(self.source, f"{self.path(name)}[{i}]", each) for i, each in enumerate(value))
        self.fail(name, f"a list of {holds}")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number that fits a float; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether a value is a whole number between two bounds, both included; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def shown(value: object) -> str:
    """Return a value as one line of at most 60 characters."""
    try:
        line = " ".join(repr(value).split())
    except ValueError:  # Python refuses to print whole numbers of over 4,300 digits.
        line = "a number of thousands of digits"
    return line if len(line) <= 60 else line[:57] + "..."


def is_file_name(text: str) -> bool:
    """Return whether a text names a file in whatever folder it is put into, and none elsewhere."""
    plain = text.isprintable() and not text.startswith(".") and not set("/\\:") & set(text)
    return plain and bool(text.strip())


def expanded(typed: str, setting: str = "") -> Path:
    """Return the path that a user typed, with ``~`` and ``~name`` expanded; `setting` names it in messages.

    Raises
    ------
    SpecsimError
        When there is no such user, or the name is longer than a file system allows.
    """
    problem = _problem_of_name(typed)
    if problem:
        raise SpecsimError(f"{setting}{shown(typed)}: {problem}")
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        user = Path(typed).parts[0]
        said = f"{setting}{typed}: no user {user[1:]!r}; a file of this name is ./{typed}"
        raise SpecsimError(said) from None


def _problem_of_name(typed: str) -> str | None:
    if SCHEME.match(typed):
        return "an address; expected a path: nothing is read or written by address"
    if not typed.isprintable():
        return "a name with a character that cannot be printed"
    longest = max((len(part.encode()) for part in Path(typed).parts), default=0)
    if longest > MOST_NAME_BYTES:
        return f"a name of {longest:,} bytes; expected at most {MOST_NAME_BYTES}"
    if len(typed.encode()) > MOST_PATH_BYTES:
        return f"a path of {len(typed.encode()):,} bytes; expected at most {MOST_PATH_BYTES:,}"
    return None
