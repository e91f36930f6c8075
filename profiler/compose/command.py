"""``specsim profile compose``: a profile of any model on any GPU, from measured kernels; no GPU needed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from profiler.compose.library import ComposedPlacement
from profiler.compose.models import composable
from profiler.compose.profile import compose_profile, slower_note
from profiler.latency.profile_file import UNFIT
from profiler.text import write, yaml_text
from specsim.acceptance.loading import Pair
from specsim.errors import say
from specsim.files.checked_mapping import expanded
from specsim.files.yaml_file import peek_yaml, shipped
from specsim.latency.model import Profile
from specsim.latency.profile import profile_from_mapping
from specsim.runs.checks import pair_note

PLACED = ("gpu", "engine", "tp", "ep", "precision", "kv_cache_dtype", "pp")
HEADING = "Written by `specsim profile compose`; docs/composing.md says how. Seconds, bytes, tokens."


class _List(argparse.Action):
    """Print the models and exit, as `--help` does."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print a name a line."""
        say(*composable())
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.add_argument("--list", action=_List, help="print the models that --target and --draft know by name")
    parser.add_argument(
        "--target", required=True, metavar="M", help="name of a model (--list), or the path of its config.json"
    )
    parser.add_argument("--draft", metavar="M", help="likewise, or of a head; default: see --drafter")
    parser.add_argument("--drafter", metavar="KIND", help="eagle, eagle3, mtp, ...: a head on the target that drafts")
    parser.add_argument("--gpu", required=True, help="h100_sxm, h200_sxm, b200_sxm, l40s, ...")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallelism: GPUs (default: 1)")
    parser.add_argument(
        "--ep", type=int, default=1, metavar="N", help="expert parallelism, of the same GPUs (default: 1)"
    )
    parser.add_argument(
        "--pp", type=int, default=1, metavar="N", help="pipeline parallelism: stages of so many GPUs (default: 1)"
    )
    parser.add_argument(
        "--precision",
        metavar="P",
        help="bf16, fp8, fp8_block, nvfp4, int4; of experts mxfp4, mxfp4_mxfp8 (default: the checkpoint's)",
    )
    parser.add_argument("--kv-cache-dtype", default="auto", metavar="T", help="auto, bf16 or fp8 (default: auto)")
    parser.add_argument("--engine", default="vllm", help="whose kernels: vllm, sglang or trtllm (default: vllm)")
    parser.add_argument("--out", type=expanded, required=True, metavar="FILE", help="the profile, a YAML file")


def run(arguments: argparse.Namespace) -> int:
    """Compose, write, and say what came out; return 0, or 4 if the forms are not fit for use."""
    given = dict(vars(arguments))
    out: Path = given.pop("out")
    mapping = compose_profile(**given, name=out.stem)
    write(out, yaml_text(mapping, HEADING))
    profile, kernels = profile_from_mapping(mapping, str(out)), mapping["provenance"][0]
    errors = ", ".join(
        f"{kind} {100 * each['median']:.1f} / {100 * each['worst']:.1f}%"
        for kind, each in profile.target.fit_error.items()
    )
    say(
        f"{out}: {mapping['description']}, {kernels['precision']}",
        f"  kernels: {kernels['origin']}, {kernels['versions']}; {mapping['assumptions'][1]}",
        f"  baseline {1e3 * profile.baseline_s:.1f} ms, cache for {profile.usable_kv_tokens:,} tokens, "
        f"context {profile.target.max_model_len:,}" + (f" ({kernels['contexts']})" if "contexts" in kernels else ""),
        f"  suggests {', '.join(f'{group}={name}' for group, name in mapping['suggests'].items())}",
        f"  held-out error of form={profile.target.form}, median / worst: {errors}",
    )
    place = ComposedPlacement(*(given[each] for each in PLACED))
    notes = slower_note(arguments.target, place), _of_another_pair(mapping["suggests"].get("acceptance"), profile, out)
    say(*(f"  {note}" for note in notes if note is not None))
    if (problem := profile.unfit) is None:
        return 0
    say(f"  {problem}")
    return UNFIT


def _of_another_pair(acceptance: str | None, profile: Profile, out: Path) -> str | None:
    """Return the line that a run will note where the acceptance that the profile brings is another pair's."""
    if acceptance is None:
        return None
    pair = Pair(**peek_yaml(shipped("conf") / "acceptance" / f"{acceptance}.yaml")["pair"])
    return pair_note(pair, profile, f"acceptance={acceptance}", f"profile={out}", refused=False)
