"""Prompt files: public benchmarks as published, and a simple format for your own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from specsim.errors import SpecsimError, first_line, nearest
from specsim.workload.readers import content


class Prompt(NamedTuple):
    """The user's first message, with its category and its number within the category."""

    category: str
    sequence: int
    text: str


SPEC_BENCH = {
    "translation": "translation",
    "summarization": "summarisation",
    "rag": "rag",
    "qa": "qa",
    "math_reasoning": "math",
}
"""Spec-Bench's own categories; its others are MT-Bench's and count as ``chat``."""


ANSWER = "Complete this Python function. Answer with code.\n\n```python\n{prompt}```"
LAYOUTS: tuple[tuple[set[str], Callable[[Mapping[str, Any]], tuple[str, str]]], ...] = (
    ({"task_id", "prompt", "entry_point"}, lambda line: ("code", ANSWER.format(prompt=line["prompt"]))),
    ({"task_id", "text", "code"}, lambda line: ("code", f"{line['text']} Answer with Python code.")),
    ({"question", "answer"}, lambda line: ("math", line["question"])),
    ({"question_id", "category", "turns"}, lambda line: (SPEC_BENCH.get(line["category"], "chat"), line["turns"][0])),
    ({"category", "prompt"}, lambda line: (line["category"], line["prompt"])),
)
"""Keys of a line, and its category and prompt: HumanEval, MBPP, GSM8K, Spec-Bench, a file of one's own."""


def read_prompts(paths: Sequence[Path], only: Collection[str] = ()) -> list[Prompt]:
    """Return the prompts of JSON-lines files (gzip too); in a category the files take turns, and each text is once.

    Parameters
    ----------
    paths : files of HumanEval, MBPP, GSM8K or Spec-Bench as published, or lines of ``{"category", "prompt"}``.
    only : the categories wanted; empty: all.

    Raises
    ------
    SpecsimError
        One line naming file and line: unreadable, empty, not JSON, an unknown layout, an unknown category.
    """
    lanes: dict[str, list[list[str]]] = {}
    for path in paths:
        of_file: dict[str, list[str]] = {}
        for category, text in _records(path):
            of_file.setdefault(category, []).append(text)
        for category, texts in of_file.items():
            lanes.setdefault(category, []).append(texts)
    for name in sorted(set(only) - set(lanes)):
        raise SpecsimError(f"category {name!r} is in none of the prompt files{nearest(name, lanes)}")
    found = []
    for category in [each for each in lanes if not only or each in only]:
        turns = chain.from_iterable(zip_longest(*lanes[category]))
        found += [Prompt(category, *each) for each in enumerate(dict.fromkeys(filter(None, turns)))]
    return found


def _records(path: Path) -> Iterator[tuple[str, str]]:
    """Yield category and prompt of each line that is not blank."""
    try:
        text = content(path, "prompt file").decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecsimError(f"{path}: cannot be read: {first_line(error)}") from None
    if not text.strip():
        raise SpecsimError(f"{path}: holds no prompt")
    # Not splitlines(), which splits at U+2028 and others that a JSON text may hold.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SpecsimError(f"{where}: is not JSON: {first_line(error)}") from None
        yield _read(record, where)


def _read(record: Any, where: str) -> tuple[str, str]:
    layout = next((read for keys, read in LAYOUTS if isinstance(record, dict) and keys <= set(record)), None)
    if layout is None:
        raise SpecsimError(f'{where}: expected {{"category": ..., "prompt": ...}} or a line of a known benchmark')
    try:
        category, text = layout(record)
    except (IndexError, KeyError, TypeError):
        raise SpecsimError(f"{where}: a known benchmark's keys without their contents") from None
    if not isinstance(category, str) or not category or not isinstance(text, str) or not text.strip():
        raise SpecsimError(f"{where}: category and prompt: expected two texts that are not empty")
    if not category.isprintable():
        raise SpecsimError(f"{where}: category: {category!a} is not a name of printable characters")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON's escapes may also give halves of surrogate pairs.
        raise SpecsimError(f"{where}: prompt: expected Unicode text, not half of a surrogate pair") from None
    return category, text
