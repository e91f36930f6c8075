"""Text that a command writes: progress, Markdown tables, YAML of profiles, and files that are replaced in one step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

from specsim.errors import say
from specsim.files.staging import in_one_step

INLINE_WIDTH = 170
"""Characters of a line of YAML before it is broken."""


Notify = Callable[..., None]
"""Shows progress: a line, empty for none, and how many pieces of work have ended."""


@contextmanager
def progress(total: int, unit: str) -> Iterator[Notify]:
    """Yield what shows lines, and on a terminal a bar below them."""
    from specsim.runs.processes import bar_of, is_watched

    if not is_watched():
        yield lambda line, ended=0: say(*filter(None, [line]), flush=True)
        return
    with bar_of(total, unit) as bar:

        def show(line: str, ended: int = 0) -> None:
            if line:
                bar.write(line)
            bar.update(ended)

        yield show


@contextmanager
def keeping(*places: Path) -> Iterator[None]:
    """Have an interruption say which of the `places` holds what was done, for the same command to go on with."""
    try:
        yield
    except KeyboardInterrupt:
        there = [f"{each} keeps what was done; the same command goes on" for each in places if each.exists()]
        raise KeyboardInterrupt(*there[:1]) from None


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, without a line break at its end."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write(path: Path, text: str) -> None:
    """Replace a file in one step; a folder that is missing is made.

    Raises
    ------
    SpecsimError
        When the file cannot be written.
    """
    with in_one_step(path) as partial:
        partial.write_text(text, encoding="utf-8")


def yaml_text(mapping: Mapping[str, Any], heading: str) -> str:
    """Return a mapping as YAML under a comment: in its order, six significant digits, one line per small mapping."""
    lines = [f"# {heading}"]
    for key, value in mapping.items():
        lines += _block(key, value, 0)
    return "\n".join(lines) + "\n"


def _block(key: str, value: object, depth: int) -> list[str]:
    pad = "  " * depth
    line = f"{pad}{key}: {_inline(value)}"
    simple = not isinstance(value, Mapping | list) or _is_flat(value)
    if simple and len(line) <= INLINE_WIDTH:
        return [line]
    if isinstance(value, Mapping):
        return [f"{pad}{key}:"] + [each for k, v in value.items() for each in _block(k, v, depth + 1)]
    if isinstance(value, list) and _is_flat(value):
        return wrap(line, INLINE_WIDTH, subsequent_indent=f"{pad}  ", break_long_words=False)
    if isinstance(value, list):
        return [f"{pad}{key}:"] + [each for item in value for each in _item(item, depth + 1)]
    return [line]


def _is_flat(value: object) -> bool:
    """Return whether a mapping or list has neither nested values nor long text."""
    items = list(value.values()) if isinstance(value, Mapping) else value
    return isinstance(items, list) and all(isinstance(each, int | float) or each is None for each in items)


def _item(item: object, depth: int) -> list[str]:
    pad = "  " * depth
    if not isinstance(item, Mapping):
        return [f"{pad}- {_inline(item)}"]
    lines = [line for key, value in item.items() for line in _block(key, value, depth + 1)]
    return [f"{pad}- {lines[0].strip()}", *lines[1:]]


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(each) for each in value) + "]"
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return six significant digits, written so that every YAML reader reads a number."""
    text = f"{value:.6g}"
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{exponent}" if exponent else mantissa
