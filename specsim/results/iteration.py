"""One iteration of a run: its requests, and every node of their token trees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Iteration:
    """One verification: which tokens were drafted, which of them the target read, and which it accepted.

    Attributes
    ----------
    number : of the verification in its run, from 0: its place among the rows of ``kind`` 1 in `passes`.
    start_s : simulated seconds at which the scheduler asked for it, its drafting behind it.
    requests : a row per request of the pass: ``request``, ``slo_class``, ``tpot_slo_s``; ``decoding``, False where a
        prompt is read; ``decoded_tokens`` before this verification, and the seconds spent on them and on this step's
        drafting, ``decoding_s``; ``accepted_tokens`` and ``emitted_tokens`` of this verification.
    nodes : a row per node, roots first: its ``request``, ``parent`` (a row of this table, -1 at roots), ``depth``;
        ``rank`` among the drafter's proposals, from 0, -1 at roots; ``probability`` and ``path_probability`` by the
        drafter; ``verified``; ``for_slo``, whether AdaServe's first selection took it, missing where the scheduler
        has no such selection; ``right``, whether the target chooses this path; ``accepted``.
    stand_in : what is said of a trace that ships in another's place; None: the run's is what it says.
    """

    number: int
    start_s: float
    requests: DataFrame
    nodes: DataFrame
    stand_in: str | None = None

    def draw(self, requests: Iterable[int] | None = None) -> Figure:
        """Return a figure of the token trees of these requests, by default of all that decode.

        Raises
        ------
        SpecsimError
            When a request does not decode in this iteration, or there is none to draw.
        """
        from specsim.figures.trees import token_trees

        return token_trees(self, requests)
