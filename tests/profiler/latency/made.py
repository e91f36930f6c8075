"""Samples made by a known law, and the facts of a machine that does not exist."""

import numpy as np

from profiler.latency.points import FULL
from profiler.latency.samples import SampleFile, Timing, sample_of
from tests.made import one

FACTS = {"target": "big", "draft": "small", "tp": 1, "device": "cuda", "dtype": "bfloat16", "attention": "flex"}
FACTS |= {"hardware": "Card", "driver": "1.2", "torch": "2", "transformers": "5", "specsim": "0"}
FACTS |= {"memory_bytes": 80 * 2**30, "flops_per_s": 3.12e14, "bytes_per_s": 2e12, "knee_tokens": 156.0}
FACTS |= {"attention_error": {"target": 0.004, "draft": 0.003}, "assumptions": ["made up"]}
FACTS["models"] = {
    role: {"name": name, "kv_bytes_per_token": 1024, "weights_bytes": 10**9}
    for role, name in (("target", "Big"), ("draft", "Small"))
}
COLUMNS = {"runs": 9, "least_s": 0.0, "spread_s": 0.0, "sm_clock_mhz": 1500.0, "memory_clock_mhz": 900.0}


def sample(point, role="target", mode="graph", seconds=0.01, status="ok", **changes):
    timing = Timing(seconds, seconds, 0.0, 0.0, COLUMNS["runs"])
    shares = {"prepare_s": 0.0002, "sample_s": 0.0001, "measured_at": "2026-01-02T03:04:05+00:00"}
    return sample_of(role, point, mode, status, timing, **{**shares, **COLUMNS, **changes})


def samples_of(form, role="target", noise=0.0, grid=FULL):
    """Return samples of a whole grid whose seconds are those of `form`, with relative noise."""
    rng = np.random.default_rng(4)
    made = []
    for point in grid.passes(role):
        work = point.work()
        seconds = form.seconds(one(work.context_tokens, work.batched_tokens, work.attention_pairs, work.logit_tokens))
        made.append(sample(point, role, seconds=float(seconds * (1 + noise * rng.standard_normal()))))
    return made


def written(path, samples, **facts):
    file = SampleFile(path, FACTS | facts)
    file.samples = samples
    file.write()
    return path
