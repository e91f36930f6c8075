"""YAML files within bounds: paths, sizes, interpolation."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, beside, first_line
from specsim.files.checked_mapping import copied, shown


@cache
def shipped(name: str) -> Path:
    """Return the folder ``conf`` or ``traces`` of this installation.

    Raises
    ------
    FileNotFoundError
        When the installation is broken and has neither.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"this installation of specsim lacks its {name}/ folder")


@lru_cache(maxsize=4096)
def is_path(value: str) -> bool:
    """Return whether a group's value means a file: it has a slash or a suffix."""
    return "/" in value or bool(Path(value).suffix)


MOST_FILE_BYTES = 2 << 30
MOST_ROWS, FREE_ROWS, ROWS_PER_BYTE = 50_000_000, 1_000_000, 8
"""The most rows of a Parquet file; of more than `FREE_ROWS`, the most per byte, since a row takes at least a bit."""


def check_file(path: Path, most_bytes: int, what: str = "file", setting: str = "") -> os.stat_result:
    """Return the `os.stat` of a file; refuse one that would block a reader or fill the memory.

    Parameters
    ----------
    what : the kind of file expected. setting : ``key=``, put before the path in messages if a setting named it.

    Raises
    ------
    SpecsimError
        When the file does not exist, is a folder, a pipe or a device, is larger than `most_bytes`, or cannot be read.
    """
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise SpecsimError(f"{setting}{path}: no such {what}{beside(path)}") from None
    except (OSError, ValueError) as error:
        raise SpecsimError(f"{setting}{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(facts.st_mode):
        found = "a folder" if stat.S_ISDIR(facts.st_mode) else "a pipe or a device"
        raise SpecsimError(f"{setting}{path}: is {found}; expected a {what}")
    if facts.st_size > most_bytes:
        raise SpecsimError(f"{setting}{path}: {size(facts.st_size)}; expected at most {size(most_bytes)}")
    return facts


def check_rows(path: Path, rows: int, held_bytes: int) -> None:
    """Refuse a Parquet file that states more rows than `held_bytes` can hold.

    Raises
    ------
    SpecsimError
        One line with the limit.
    """
    most = min(MOST_ROWS, max(FREE_ROWS, ROWS_PER_BYTE * held_bytes))
    if rows > most:
        raise SpecsimError(f"{path}: states {rows:,} rows in {size(held_bytes)}; expected at most {most:,}")


def size(count: int) -> str:
    """Return bytes in words, in the largest unit of which there is at least one: 1.5 GiB, 64 MiB, 12 bytes."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} bytes"


def leaves(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value that is neither a mapping nor a list, with the keys and list indices that lead there."""
    if not isinstance(node, Mapping | list) or not node:
        yield place, node
        return
    for name, value in node.items() if isinstance(node, Mapping) else enumerate(node):
        yield from leaves(value, (*place, name))


UNFOLLOWED = "${...} is not followed; expected the value itself"
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
        said = "empty" if values is None else f"{shown(values)}, no mapping"
        raise SpecsimError(f": {said}; expected keys with values")
    for place, value in leaves(values):
        if isinstance(value, str) and "${" in value:
            raise SpecsimError(f": {'.'.join(map(str, place))}: {value[:60]!r}: {UNFOLLOWED}")
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


CLASSES = ("slo", "classes")


def _ordered(value: Any, *above: str) -> Any:
    """Return mappings with sorted keys, but for a mix's classes, whose order decides which request is of which."""
    if isinstance(value, list | tuple):
        return [_ordered(each, *above) for each in value]
    if not isinstance(value, Mapping):
        return value
    keys = value if above == CLASSES else sorted(value, key=lambda key: (isinstance(key, str), key))
    return {key: _ordered(value[key], *above, key) for key in keys}


def config_text(value: Any) -> str:
    """Return a run's settings as the text of ``config.yaml``."""
    return yaml_text(_ordered(value), sort_keys=False)


def yaml_text(value: Any, *, sort_keys: bool = True) -> str:
    """Return plain values as YAML."""
    import yaml

    form: dict[str, Any] = {"sort_keys": sort_keys, "allow_unicode": True, "default_flow_style": False}
    try:
        # Five times as fast with libyaml, which writes no path with bytes beyond UTF-8.
        text: str = yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), **form)
    except UnicodeEncodeError:
        text = yaml.safe_dump(value, **form)
    return text.removesuffix("...\n")
