"""Text that a command writes: progress, Markdown tables, YAML of profiles, and files that are replaced in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from specsim.errors import say
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import EXPONENT, TAG

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
    text = yaml.dump(mapping, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=INLINE_WIDTH)
    return f"# {heading}\n{text}"


class _Writer(yaml.SafeDumper):
    """Writes numbers in line, and mappings and lists of other values as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write out what stands in several places."""
        return True


def _is_flat(values: Iterable[object]) -> bool:
    """Return whether values are neither nested nor text."""
    return all(isinstance(each, int | float) or each is None for each in values)


def _mapping(writer: _Writer, value: dict[str, Any]) -> yaml.Node:
    return writer.represent_mapping(f"{TAG}map", value.items(), flow_style=_is_flat(value.values()))


def _list(writer: _Writer, value: list[Any]) -> yaml.Node:
    return writer.represent_sequence(f"{TAG}seq", value, flow_style=_is_flat(value))


def _number(writer: _Writer, value: float) -> yaml.Node:
    return writer.represent_float(float(f"{value:.6g}"))


_Writer.add_representer(dict, _mapping)
_Writer.add_representer(list, _list)
_Writer.add_representer(float, _number)
_Writer.add_implicit_resolver(f"{TAG}float", EXPONENT, list("-+0123456789"))  # Text such as 1e5 is in quotes.
