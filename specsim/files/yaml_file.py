"""A YAML file of unknown origin: read within bounds, without anchors, aliases or tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, first_line
from specsim.files.checked_mapping import shown
from specsim.files.interpolation import check_references
from specsim.files.plain import copied
from specsim.files.regular_file import check_file

MOST_BYTES = 1 << 20
"""The most bytes of a file; the largest in conf/ has 6 KiB."""
MOST_DEPTH = 32
MOST_CHARACTERS = 1 << 16
"""The most characters of a value."""
TAG = "tag:yaml.org,2002:"
EXPONENT = re.compile(r"^[-+]?[0-9]+(_[0-9]+)*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
"""A number with an exponent; YAML 1.1 reads it as text, Hydra as a number."""
MOST_WHOLE = 1 << 1024
"""Whole numbers from here on do not fit a float; Python refuses to print those of over 4,300 digits."""


def read_yaml(path: Path, what: str = "YAML file", group: str = "") -> dict[str, Any]:
    """Return the mapping of a YAML file; a number with an exponent is a number, a date is text.

    Anchors, aliases, tags and references to outside the file are refused: some hundred bytes of them could expand to
    gigabytes, or to an environment variable.

    Parameters
    ----------
    what : the kind of file expected. group : ``key=``, put before the path in messages if a setting named it.

    Raises
    ------
    SpecsimError
        One line naming the file and its line or key that is refused.
    """
    values: dict[str, Any] = copied(peek_yaml(path, what, group))
    return values


def peek_yaml(path: Path, what: str = "YAML file", group: str = "") -> Mapping[str, Any]:
    """Return what `read_yaml` does, to be looked at and not changed: all who ask for a file share it."""
    facts = check_file(path, MOST_BYTES, what, group)
    try:
        return _values(path, facts.st_mtime_ns, facts.st_size)
    except SpecsimError as error:
        raise SpecsimError(f"{group}{path}{error}") from None


@lru_cache(maxsize=256)
def _values(path: Path, mtime_ns: int, size: int) -> dict[str, Any]:
    """Return the mapping of a file; cached by time and size, since a sweep reads the same few files for each point."""
    import yaml

    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_loader())
    except (OSError, ValueError) as error:
        raise SpecsimError(f": cannot be read: {first_line(error)}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or first_line(error)).split())
        said = problem if isinstance(error, yaml.composer.ComposerError) else f"not YAML: {problem}"
        raise SpecsimError(f"{line}: {said}") from None
    if not isinstance(values, dict):
        raise SpecsimError(f": {shown(values)} is not a mapping of keys to values")
    try:
        check_references(values)
    except SpecsimError as error:
        raise SpecsimError(f": {error}") from None
    return values


@cache
def _loader() -> Any:
    """Return a loader that stops at the first value out of bounds."""
    import yaml

    # libyaml parses events, which is fast; Python composes them, so that each can be refused.
    bases = (yaml.composer.Composer, yaml.CSafeLoader) if yaml.__with_libyaml__ else (yaml.SafeLoader,)

    class Bounded(*bases):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            bases[-1].__init__(self, stream)
            self.anchors: dict[str, Any] = {}
            self.depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            problem = _problem(event, self.depth)
            if problem:
                raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in seen:
                    problem = f"found duplicate key {key.value}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

        def construct_yaml_int(self, node: Any) -> int:
            value: int = super().construct_yaml_int(node)
            if abs(value) >= MOST_WHOLE:
                problem = "a whole number of over 308 digits"
                raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
            return value

    Bounded.add_constructor(f"{TAG}int", Bounded.construct_yaml_int)
    Bounded.add_implicit_resolver(f"{TAG}float", EXPONENT, list("-+0123456789"))
    Bounded.yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if tag != f"{TAG}timestamp"]
        for first, forms in Bounded.yaml_implicit_resolvers.items()
    }
    return Bounded


def _problem(event: Any, depth: int) -> str | None:
    """Return what is wrong with the next value; None if nothing is."""
    import yaml

    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        return f"an anchor or alias ({event.anchor}); expected every value written out"
    if event.tag is not None:
        return f"a tag ({shown(event.tag)}); expected a plain value"
    if depth > MOST_DEPTH:
        return f"nested over {MOST_DEPTH} deep"
    if isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_CHARACTERS:
        return f"a value of {len(event.value):,} characters; expected at most {MOST_CHARACTERS:,}"
    return None
