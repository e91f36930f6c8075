"""``specsim profile latency``: measure a pair, fit, write the profile."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from profiler.latency.choice import check_shapes, shapes_of
from profiler.latency.points import ROLES, read_grid, shares, shipped
from profiler.latency.profile_file import QUICK_GRID, Places, check_places, write_profile
from profiler.lock import only_one
from profiler.options import minutes
from profiler.text import keeping
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    import torch

    from profiler.latency.models import Setting, Subject

TIME_IS_UP = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.add_argument("--target", metavar="M", help="Hugging Face name, folder or .gguf file")
    parser.add_argument("--draft", metavar="M", help="likewise")
    parser.add_argument(
        "--random-weights",
        nargs="+",
        default=[],
        metavar="SHAPE",
        help="shape of the target, then of the draft, instead of weights: llama-3.1-70b llama-3.2-1b",
    )
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="measure one of N shards of the target")
    parser.add_argument("--link", metavar="NAME", help="model of the all-reduce with --tp: nvlink4 or nvlink3")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is one")
    parser.add_argument("--dtype", help="default: bfloat16 on cuda, float32 on the CPU")
    kernels = "fa3, flex, sdpa or split (default: auto)"
    parser.add_argument("--attention", default="auto", metavar="NAME", help=kernels)
    parser.add_argument("--passes", choices=("fused", "transformers"), help="default: fused on cuda if it can be")
    parser.add_argument("--grid", type=expanded, metavar="FILE", help="YAML of sizes; keys left out are the default's")
    parser.add_argument("--quick", action="store_true", help=f"a smoke test, not a profile to use: {shares()}")
    parser.add_argument("--minutes", type=minutes, metavar="X", help="stop after X minutes; run again to go on")
    parser.add_argument("--samples", type=expanded, metavar="FILE", help="raw samples (default: beside --out)")
    parser.add_argument(
        "--figures", type=expanded, metavar="DIR", help="folder for the figures (default: beside --samples)"
    )
    parser.add_argument("--out", type=expanded, required=True, metavar="FILE", help="the profile, a YAML file")


def run(arguments: argparse.Namespace) -> int:
    """Measure the missing points and write the profile; return 3 if time runs out, 4 if it is not fit for use."""
    from profiler.models.loading import missing_for_a_fit

    places = Places.of(arguments.out, arguments.samples, arguments.figures)
    with keeping(places.samples):
        if left := measure(arguments, places):
            kept = f"{places.samples} keeps what was measured, the same command goes on"
            say(f"time is up, {left} points are left; {kept}")
            return TIME_IS_UP
        if missing := missing_for_a_fit():
            elsewhere = f"specsim profile fit {places.samples} --out {places.profile}"
            say(f"{places.samples} is whole; without {' and '.join(missing)} it is to be fitted elsewhere: {elsewhere}")
            return 0
        return write_profile(places, [places.samples])


def measure(arguments: argparse.Namespace, places: Places, most: int | None = None) -> int:
    """Measure the missing points, of which the first `most` only; return how many there was no time for.

    Raises
    ------
    SpecsimError
        When a setting is wrong, a place cannot be written, or the device fails.
    """
    from profiler.models.loading import require_extra, require_for_a_sweep

    deadline = time.monotonic() + 60 * (float("inf") if arguments.minutes is None else arguments.minutes)
    require_extra()
    require_for_a_sweep()
    check_places(places.profile, [places.samples])

    from profiler.attention.pages import memory_for
    from profiler.latency.hardware import ceilings
    from profiler.latency.samples import SampleFile
    from profiler.latency.sweep import LatencySweep
    from profiler.latency.timers import timer_for

    subjects, setting, facts = _plan(arguments)
    with only_one(places.samples):
        timer, file = timer_for(setting.device), SampleFile(places.samples, facts)
        for role in ROLES:
            planned = {point.shape for point in setting.grid.passes(role)}
            check_shapes(role, planned | shapes_of(file.samples, role), "shapes of pass in the grid and the samples")
        if "flops_per_s" not in file.facts:
            with memory_for("the large product and copy", setting.device):
                file.facts |= ceilings(timer, device=setting.device, dtype=setting.dtype)
        return LatencySweep(subjects, setting, timer, file, deadline, most=most).run()


def _plan(arguments: argparse.Namespace) -> tuple[dict[str, Subject], Setting, dict[str, Any]]:
    from profiler.latency.hardware import hardware
    from profiler.latency.measure import check_link
    from profiler.latency.models import Setting, check_shards, shared_facts
    from profiler.models.loading import default_device, load_config, torch_dtype
    from profiler.passes.checks import working_kernel
    from profiler.passes.paths import working_passes

    subjects = _subjects(arguments)
    device = default_device(arguments.device)
    dtype = torch_dtype(arguments.dtype or ("bfloat16" if device.type == "cuda" else "float32"))
    if arguments.tp < 1:
        raise SpecsimError(f"tp {arguments.tp}: expected at least 1 shard")
    check_link(arguments.link, arguments.tp)
    link = arguments.link if arguments.tp > 1 else None
    check_shards(subjects["target"], arguments.tp)
    if arguments.tp > 1 and device.type == "cpu":
        raise SpecsimError(f"tp {arguments.tp}: a shard is measured on a GPU; expected --device cuda, or no --tp")
    grid = shipped(device.type, arguments.quick)
    if arguments.grid is not None:
        grid = read_grid(arguments.grid, grid)
        say(*(f"note: {line}" for line in grid.left_out), error=True)
    kernel = working_kernel(arguments.attention, device=device, dtype=dtype)
    # Models of random weights all have a fused path.
    configs = (load_config(subject.name) for subject in subjects.values() if not subject.random)
    passes = working_passes(arguments.passes, configs, device)
    setting = Setting(device, dtype, kernel, grid, arguments.tp, link, hardware(device).cache_bytes, passes)
    names = subjects["target"].name, subjects["draft"].name
    facts = shared_facts(*names, grid, kernel, passes, device=device, dtype=dtype) | {
        "tp": arguments.tp,
        "link": link,
        "grid": QUICK_GRID if arguments.quick else "",
        "assumptions": [*grid.left_out, *_assumptions(subjects, arguments, device, passes)],
    }
    return subjects, setting, facts


def _subjects(arguments: argparse.Namespace) -> dict[str, Subject]:
    from profiler.latency.models import Subject
    from profiler.models.shapes import named_shape

    shapes, given = list(arguments.random_weights), {"target": arguments.target, "draft": arguments.draft}
    subjects = {}
    for role, name in given.items():
        if name is None and not shapes:
            raise SpecsimError(f"--{role}: missing; expected a model, or a shape after --random-weights")
        subjects[role] = Subject(shapes.pop(0), random=True) if name is None else Subject(name, random=False)
    if shapes:
        raise SpecsimError(f"--random-weights: {shapes[0]!r} is one shape too many beside --target and --draft")
    for subject in subjects.values():
        if subject.random:
            named_shape(subject.name)
    return subjects


def _assumptions(
    subjects: dict[str, Subject], arguments: argparse.Namespace, device: torch.device, passes: str
) -> list[str]:
    from profiler.latency.measure import stated
    from profiler.passes.paths import ASSUMPTIONS

    lines = [ASSUMPTIONS[passes]]
    if any(subject.random for subject in subjects.values()):
        lines.append("random weights: latency does not depend on their values")
    if arguments.tp > 1:
        lines += [stated(arguments.link, arguments.tp), "the draft runs on one GPU while the others wait"]
    if device.type == "cuda":
        lines.append("passes replayed as CUDA graphs, captured at 1, 2, 4 and every 8 tokens up to 512; above, as is")
    if subjects["draft"].name.startswith(f"{subjects['target'].name}-skip"):
        lines.append("the draft is the target with layers left out: it adds a cache but no weights")
    return lines
