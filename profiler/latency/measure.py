"""Measurement of one point: lay out inputs, time the pass, return samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiler.attention.packing import Ints, Work, captured_size
from profiler.attention.pages import NoRoom, PageTables, breaks_the_device, deal, give_back, is_out_of_memory
from profiler.latency.hardware import Clocks
from profiler.latency.points import GridPoint
from profiler.latency.samples import NAN, Sample, Timing, sample_of
from profiler.latency.timers import Effort, Timer
from profiler.models.shapes import TransformerShape
from profiler.passes.forward import Inputs, PackedForward
from specsim.errors import SpecsimError, first_line, nearest

SKIPPED = Timing(NAN, NAN, NAN, NAN, 0)
PROPOSALS = 8
FEWEST_ROTATED = 2
LONGEST_REASON = 100


@dataclass(frozen=True, slots=True)
class Bench:
    """A model ready to be timed as `role`; `whole` is its shape over all `gpus`."""

    role: str
    forward: PackedForward
    whole: TransformerShape
    timer: Timer
    clocks: Clocks
    effort: Effort
    cache_bytes: int
    link: str | None = None
    gpus: int = 1

    def samples(self, point: GridPoint) -> Iterator[Sample]:
        """Measure a point; if memory runs out or its kernel does not compile, yield a sample that says so.

        A point that breaks the device yields such a sample too, so that the next run skips it. Then its error is
        raised, since nothing runs on that device until a new start.
        """
        work = point.work()
        size = captured_size(work.batched_tokens) if self.timer.captured else work.batched_tokens
        try:
            ready = self._rotation(work, size)
            drawn = self._drawn(work, 0)
            prepare_s = self.timer.host(lambda: self.forward.inputs(work, *drawn, size))
            host = {"prepare_s": prepare_s, "sample_s": self._sampling_s(ready[0])}
            with self.clocks.watch() as seen:
                timing = self._timing(ready)
            found = self._sample(point, size, "ok", timing, seen.median(), **host)
        except (RuntimeError, MemoryError, NoRoom) as error:
            found = self._sample(point, size, _reason(error))
            if breaks_the_device(error):
                yield found
                raise
        if found.status != "ok":  # Outside the except clause, where the error no longer holds the memory of its pass.
            give_back(self.forward.device)
        yield found

    def _rotation(self, work: Work, size: int) -> list[Inputs]:
        """Return the inputs to be timed, and those that they take over in turn, with other pages and tokens.

        Between two turns of one set the others read keys of twice the last-level cache. There are at most as many sets
        as runs.
        """
        read = work.context_tokens * self.forward.shape.kv_values_per_token * self.forward.dtype.itemsize
        apart = -(-2 * self.cache_bytes // read) if read else 0
        turns = min(max(apart + 1, FEWEST_ROTATED), max(self.effort.repeats, FEWEST_ROTATED))
        return [self.forward.inputs(work, *self._drawn(work, turn), size) for turn in range(1 + turns)]

    def _drawn(self, work: Work, turn: int) -> tuple[PageTables, Ints]:
        """Return the pages and tokens of a turn; they are not timed, since a server would already have them."""
        rng = np.random.default_rng([turn, work.rows, work.context_tokens, work.batched_tokens])
        tables = deal(work, self.forward.cache.shape, rng)
        return tables, rng.integers(0, self.forward.shape.vocab, work.batched_tokens)

    def _timing(self, ready: list[Inputs]) -> Timing:
        current, others = ready[0], ready[1:]
        timed = self.timer.captured or self.timer.launched
        return timed(
            lambda: self.forward.run(current), lambda turn: current.load(others[turn % len(others)]), self.effort
        )

    def _sampling_s(self, inputs: Inputs) -> float:
        """Return the seconds from logits to results on the host: the likeliest token, or a drafter's proposals."""
        logits = self.forward.run(inputs)
        if self.role == "target":
            return self.timer.host(lambda: logits.argmax(-1).cpu())

        def propose() -> object:
            likeliest = logits.float().softmax(-1).topk(min(PROPOSALS, logits.shape[-1]))
            return likeliest.values.cpu(), likeliest.indices.cpu()

        return self.timer.host(propose)

    def _sample(
        self,
        point: GridPoint,
        size: int,
        status: str,
        timing: Timing = SKIPPED,
        clocks: tuple[float, float] = (NAN, NAN),
        **host: float,
    ) -> Sample:
        columns = {"prepare_s": NAN, "sample_s": NAN, **host}
        columns |= {"captured_tokens": size, "sm_clock_mhz": clocks[0], "memory_clock_mhz": clocks[1]}
        columns["all_reduce_s"] = all_reduce_s(self.whole, self.link, self.gpus, size, self.forward.dtype.itemsize)
        return sample_of(self.role, point, mode_of(self.timer), status, timing, **columns)


def mode_of(timer: Timer) -> str:
    """Return how passes are timed: a graph of each if the device has graphs."""
    return "graph" if timer.captured else "eager"


def _reason(error: Exception) -> str:
    """Return why a point is skipped; an error that every point would have is raised again."""
    if isinstance(error, NoRoom):
        return "no room in the cache"
    if is_out_of_memory(error):
        return "out of memory"
    if any(kind.__name__ == "TorchDynamoException" for kind in type(error).__mro__):
        said = first_line(error)[:LONGEST_REASON]
        return f"its kernel does not compile{': ' if said else ''}{said}"
    if breaks_the_device(error):
        return first_line(error)[:LONGEST_REASON]
    raise error


PER_LAYER = 2
LINKS = {
    "nvlink4": {2: (7.9e-6, 248e9), 4: (12.3e-6, 196e9), 8: (19.4e-6, 201e9)},
    "nvlink3": {2: (11.7e-6, 155e9), 4: (15.8e-6, 117e9), 8: (23.7e-6, 104e9)},
}
"""Seconds, and bytes per second, of an all-reduce by link and number of GPUs: least squares of relative errors on
aiconfigurator 0.4.0's table of NCCL's half-precision all-reduce (A100 SXM, H100 SXM), with messages up to 256 MiB."""


def check_link(name: str | None, gpus: int) -> None:
    """Refuse an unknown link, a link without that number of GPUs, and several GPUs without a link.

    Raises
    ------
    SpecsimError
        One line.
    """
    if name is None:
        if gpus > 1:
            raise SpecsimError(f"tp {gpus}: --link is missing; expected nvlink4 (H100, H200) or nvlink3 (A100)")
        return
    if name not in LINKS:
        raise SpecsimError(f"link {name!r} is unknown{nearest(name, LINKS)}")
    if gpus > 1 and gpus not in LINKS[name]:
        raise SpecsimError(f"tp {gpus}: the model of link {name} is for 2, 4 or 8 GPUs")


def all_reduce_s(shape: TransformerShape, link: str | None, gpus: int, tokens: int, value_bytes: int) -> float:
    """Return the all-reduce seconds of a pass of `tokens`: two all-reduces per layer, none on one GPU."""
    if gpus == 1 or link is None:
        return 0.0
    latency_s, bytes_per_s = LINKS[link][gpus]
    return PER_LAYER * shape.layers * (latency_s + tokens * shape.hidden * value_bytes / bytes_per_s)


MEDIAN_ERROR = "8 to 16%"


def stated(link: str, gpus: int) -> str:
    """Return the model and its error as one line for the profile's assumptions."""
    latency_s, bytes_per_s = LINKS[link][gpus]
    return (
        f"one of {gpus} shards measured; its all-reduces by a model: {PER_LAYER} a layer, "
        f"{latency_s * 1e6:.1f} us + bytes / {bytes_per_s / 1e9:.0f} GB/s ({link}), "
        f"a line whose median error is {MEDIAN_ERROR} on NCCL's times"
    )
