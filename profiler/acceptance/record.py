"""Recording: the target writes a batch of texts, the drafter proposes along each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from profiler.acceptance.network import generate, random_key
from profiler.acceptance.rows import AcceptanceRows, RecordedBatches, Text
from profiler.acceptance.settings import RecordingSettings
from profiler.attention.pages import is_out_of_memory
from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from profiler.acceptance.pair import RecordingPair

WINDOW = 4
"""Batches whose prompts are sorted by length together: less padding, but little bias of length at an early stop."""


class Task(NamedTuple):
    """A prompt as token ids, with its category and sequence number."""

    text: Text
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TraceWriter:
    """A pair that records.

    Attributes
    ----------
    pair : whose target writes, and whose drafter proposes along its texts. batch : texts written together.
    """

    pair: RecordingPair
    settings: RecordingSettings
    batch: int

    def record(self, tasks: Sequence[Task], parts: RecordedBatches) -> dict[Text, AcceptanceRows]:
        """Return the rows of every task; those in `parts` are kept, new ones are added to it batch by batch.

        Raises
        ------
        SpecsimError
            Too little memory, or a model whose probabilities are not finite; finished batches stay in `parts`.
        """
        there = parts.read()
        left = [task for task in tasks if task.text not in there]
        with tqdm(total=len(tasks), initial=len(tasks) - len(left), unit="text", dynamic_ncols=True) as progress:
            for batch in batches(left, self.batch):
                rows = self._rows(batch)
                parts.add(rows)
                there |= rows
                progress.update(len(batch))
                progress.set_postfix(tokens=sum(int((each.path < 0).sum()) for each in there.values()))
        return {task.text: there[task.text] for task in tasks}

    def _rows(self, batch: Sequence[Task]) -> dict[Text, AcceptanceRows]:
        try:
            rows = self.rows(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            said = f"too little memory for {len(batch)} texts at once; finished ones are kept, try a smaller --batch"
            raise SpecsimError(said) from None
        if not all(np.isfinite(each.confidence).all() for each in rows.values()):
            raise SpecsimError("the drafter's probabilities are not numbers; a wider --dtype may help (float32)")
        return rows

    def rows(self, batch: Sequence[Task]) -> dict[Text, AcceptanceRows]:
        """Return the rows of one batch of texts."""
        pair, seed = self.pair, self.settings.seed
        texts = generate(
            pair.target,
            [task.ids for task in batch],
            [random_key(seed, "target", *task.text) for task in batch],
            tokens=self.settings.tokens,
            temperature=self.settings.temperature,
            vocabulary=pair.vocabulary,
            stop=pair.stop,
        )
        return {
            task.text: pair.drafter.rows(
                torch.tensor(task.ids, device=pair.target.device), written, random_key(seed, "draft", *task.text)
            )
            for task, written in zip(batch, texts, strict=True)
        }


def batches(tasks: Sequence[Task], size: int) -> Iterator[list[Task]]:
    """Yield batches of one category each; categories take turns, and prompts of similar length are together."""
    by_category: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_category[task.text[0]].append(task)
    for turn in zip_longest(*(_of_one_category(each, size) for each in by_category.values())):
        yield from filter(None, turn)


def _of_one_category(tasks: Sequence[Task], size: int) -> Iterator[list[Task]]:
    for first in range(0, len(tasks), WINDOW * size):
        window = sorted(tasks[first : first + WINDOW * size], key=lambda task: len(task.ids))
        for place in range(0, len(window), size):
            yield window[place : place + size]
