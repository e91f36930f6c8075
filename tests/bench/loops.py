"""Loops in one process: iterations per second of a run that is prepared, the best of several."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.rows import Row, yardstick_us

if TYPE_CHECKING:
    from specsim.simulation import Simulation

REPEATS = 3
STEADY = """\
_target_: specsim.schedulers.composed.Composed
batching:
  _target_: specsim.schedulers.sarathi.Chunked
  max_num_seqs: 512
  prefill_tokens: 16384
  prefill: mixed
  watermark: 0.01
speculation:
  _target_: specsim.schedulers.adaserve.SloTrees
  verify_tokens: {budget}
  shape: {{_target_: specsim.schedulers.parts.tree_shape.Fixed, depth: {depth}, width: {width}}}
  order: {{_target_: specsim.schedulers.parts.selection.neediest_first, _partial_: true}}
  cap: {{_target_: specsim.schedulers.parts.selection.at_most_the_tree, _partial_: true}}
  slo_share: 1.2
  slo_below: null
  fill: true
  time_margin: 1.0
"""
PROFILE = "profile=llama8b_1b_h100"
CONV = ("trace=azure_conv", PROFILE, "requests=2000")
CODE = ("trace=azure_code", PROFILE, "requests=2000", "replicas=1")
FIXED = "{distribution:fixed,mean:%d,cv:null,low:null,high:null}"


@dataclass(frozen=True)
class Loop:
    """A run to time: its words, what it should reach, and fields of the `Simulation` to replace."""

    name: str
    words: tuple[str, ...]
    target: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def batch(rows: int, output_tokens: int = 2000) -> tuple[str, ...]:
    """Return the words of a steady batch: so many requests at once, of one length."""
    lengths = (f"trace.output_tokens={FIXED % output_tokens}", f"trace.prompt_tokens={FIXED % 100}")
    return ("trace=poisson", f"requests={rows}", "rps=100000", PROFILE, *lengths)


def main_loops(folder: Path) -> Iterator[Loop]:
    apart = {"multi_step": False}
    yield Loop("continuous, azure_conv, step by step", ("scheduler=continuous", *CONV), "25,000 it/s", apart)
    yield Loop("continuous, azure_code, step by step", ("scheduler=continuous", *CODE), "25,000 it/s", apart)
    yield Loop("continuous, azure_conv", ("scheduler=continuous", *CONV), "150,000 it/s")
    yield Loop("continuous, azure_code", ("scheduler=continuous", *CODE), "150,000 it/s")
    yield Loop("vllm_spec k=4, azure_conv, step by step", ("scheduler=vllm_spec", *CONV), fields=apart)
    yield Loop("vllm_spec k=4, azure_conv", ("scheduler=vllm_spec", *CONV), "15,000 it/s")
    yield Loop("vllm_spec k=4, azure_code", ("scheduler=vllm_spec", *CODE), "15,000 it/s")
    for name in ("smartspec", "specserve"):
        yield Loop(f"{name}, azure_conv", (f"scheduler={name}", *CONV), "8,000 it/s")
        yield Loop(f"{name}, azure_code", (f"scheduler={name}", *CODE), "8,000 it/s")
    yield Loop("adaserve 64 x 8 x 3, budget 512, steady", (steady(folder, 8, 3, 512), *batch(64)), "8,000 it/s")


def steady(folder: Path, depth: int, width: int, budget: int) -> str:
    """Return the word that chooses AdaServe with trees of this shape."""
    file = folder / f"steady-{depth}-{width}-{budget}.yaml"
    file.write_text(STEADY.format(depth=depth, width=width, budget=budget))
    return f"scheduler={file}"


def every_scheduler() -> Iterator[Loop]:
    """Yield each shipped scheduler on the first requests of one trace."""
    from specsim.config.groups import names

    for name in names("scheduler"):
        # The recording that a scheduler suggests may be of another target: of no matter for its speed.
        yield Loop(name, (f"scheduler={name}", *CONV[:2], "requests=500", "any_fit=true"))


def timed(loop: Loop, group: str, repeats: int = REPEATS) -> Row:
    """Return the row of a loop: processor time of the run alone, the best of several."""
    from specsim.simulation import run

    simulation = replace(prepared(loop.words), **loop.fields)
    yardstick = yardstick_us()
    iterations, best_s = 0, float("inf")
    for _ in range(repeats):
        start_s = time.process_time()
        iterations = run(simulation).totals.iterations
        best_s = min(best_s, time.process_time() - start_s)
        # The best of both: another process that comes and goes disturbs the one and not the other.
        yardstick = min(yardstick, yardstick_us())
    return Row(group, loop.name, iterations, best_s / iterations * 1e6, yardstick, target=loop.target)


def prepared(words: tuple[str, ...]) -> Simulation:
    """Return the run that words name."""
    from specsim.config.configured import from_words
    from specsim.runs.plan import checked

    (point,) = checked(from_words(words, sweep=False))
    return point.experiment.simulation


def measured() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for loop in main_loops(Path(folder)):
            yield timed(loop, "loop")
