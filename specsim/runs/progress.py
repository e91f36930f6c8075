"""A progress bar, where somebody watches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

Watcher = Callable[[int], None]


@contextmanager
def bar(total: int, unit: str, progress: bool) -> Iterator[Watcher | None]:
    """Yield what hears how many have ended; a bar on a terminal and in Jupyter, None in a pipe."""
    if not progress or not is_watched():
        yield None
        return
    with bar_of(total, unit) as drawn:

        def watch(ended: int) -> None:
            drawn.update(ended - drawn.n)

        yield watch


def bar_of(total: int, unit: str, **how: Any) -> tqdm[Any]:
    """Return a bar of the kind that the terminal or Jupyter shows; `how` is tqdm's."""
    with warnings.catch_warnings():
        # Without ipywidgets the bar is text: nothing that a user must hear.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    return tqdm(total=total, unit=unit, leave=False, **how)


def is_watched() -> bool:
    """Return whether stderr is a terminal or Jupyter."""
    return sys.stderr.isatty() or _in_jupyter()


def _in_jupyter() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")
