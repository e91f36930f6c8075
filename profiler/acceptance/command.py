"""``specsim profile acceptance``: record a pair, then analyse the recording."""

from __future__ import annotations

import argparse
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.acceptance.settings import DRAFTERS, PROPOSALS, RecordingSettings, checksums, same_settings
from profiler.lock import only_one
from profiler.models.loading import DTYPES, require_extra, versions
from profiler.options import wholes
from profiler.text import keeping
from specsim.errors import SpecsimError, say
from specsim.files.checked_mapping import expanded

if TYPE_CHECKING:
    from profiler.acceptance.prompts import Prompt
    from profiler.acceptance.trace_file import RecordedTrace

DESCRIPTION = "Record how a drafter agrees with its target on your prompts; resumes where it was stopped."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = DESCRIPTION
    add = parser.add_argument
    add("--target", metavar="M", help="Hugging Face name, folder or .gguf file")
    add("--draft", metavar="M", default="", help="the same, for --drafter separate")
    add("--drafter", metavar="KIND", default="separate", help=f"{', '.join(DRAFTERS)} (default: %(default)s)")
    skipped = "layers the drafter leaves out, from 0 (--drafter skip)"
    add("--skip-layers", metavar="I,J,...", type=wholes, default=(), help=skipped)
    ngrams = "tokens of a match (default: %(default)s)"
    add("--lookup-ngrams", metavar="MIN:MAX", type=_ngrams, default="1:32", dest="lookup", help=ngrams)
    files = 'JSON lines: {"category", "prompt"}, or a benchmark'
    add("--prompts", metavar="FILE", nargs="+", type=expanded, help=files)
    add("--categories", metavar="A,B,...", type=_names, default=(), help="only these (default: all)")
    add("--out", metavar="FILE", type=expanded, required=True, help="the recording, .parquet; analyses go beside it")
    add("--limit", metavar="N", type=int, default=40, help="texts of each category, 0: all (default: %(default)s)")
    add("--tokens", metavar="N", type=int, default=256, help="most output tokens of a text (default: %(default)s)")
    add("--longest-prompt", metavar="N", type=int, default=2048, help="leave out longer ones (default: %(default)s)")
    add("--temperature", metavar="T", type=float, default=0.0, help="of the target; 0: greedy (default: %(default)s)")
    kept = f"proposals kept a position (default: {PROPOSALS}; 1 if sampled)"
    add("--width", metavar="K", type=int, dest="proposals", help=kept)
    add("--draft-sampling", action="store_true", help="the drafter draws its one proposal; chains only")
    turns = "wrong turns at every Nth position (default: %(default)s)"
    add("--off-path-every", metavar="N", type=int, dest="every", default=4, help=turns)
    add("--batch", metavar="N", type=int, default=8, help="texts written together (default: %(default)s)")
    add("--seed", type=int, default=0, help="of all random draws (default: %(default)s)")
    add("--device", default="cpu", help="cpu, cuda or cuda:N (default: %(default)s)")
    add("--dtype", default="float32", help=f"{', '.join(DTYPES)} (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Record what is missing, or without a target read ``--out``; write the analyses; return 0.

    Raises
    ------
    SpecsimError
        One line about what is wrong with the arguments.
    """
    from profiler.acceptance.analysis import analyse, markdown
    from profiler.acceptance.rows import parts_folder
    from profiler.acceptance.trace_file import read_acceptance_trace

    out: Path = arguments.out
    if out.suffix != ".parquet":
        raise SpecsimError(f"--out {str(out)!r}: expected the name of a .parquet file")
    only_read = not arguments.target and not arguments.prompts and out.exists()
    if not only_read and (not arguments.target or not arguments.prompts):
        raise SpecsimError("specsim profile acceptance needs --target and --prompts")
    if arguments.limit < 0 or arguments.batch < 1:
        raise SpecsimError(f"--limit {arguments.limit}, --batch {arguments.batch}: expected at least 0 and 1")
    with keeping(out, parts_folder(out)):
        told = analyse(read_acceptance_trace(out) if only_read else acceptance_trace(arguments), out)
    say(*markdown(told).partition("\n\n")[0].split("\n"))
    return 0


def acceptance_trace(arguments: argparse.Namespace) -> RecordedTrace:
    """Return the recording that the arguments ask for, from its file if that is complete."""
    from profiler.acceptance.prompts import read_prompts
    from profiler.acceptance.trace_file import read_acceptance_trace

    out: Path = arguments.out
    prompts = read_prompts(arguments.prompts, arguments.categories)
    settings = _settings(arguments)
    wanted = settings.told() | {"limit": arguments.limit, "categories": sorted(arguments.categories)}
    if out.exists():
        there = read_acceptance_trace(out)
        same_settings(there.about.get("settings", {}), wanted, str(out))
        return there
    require_extra()
    with only_one(out):
        _record(settings, arguments, wanted, prompts)
    return read_acceptance_trace(out)


def _record(
    settings: RecordingSettings, arguments: argparse.Namespace, wanted: dict[str, Any], prompts: list[Prompt]
) -> None:
    """Write the recording; finished batches stay beside it until it is complete."""
    from profiler.acceptance.pair import encoder, load_pair, tasks
    from profiler.acceptance.record import TraceWriter
    from profiler.acceptance.rows import RecordedBatches, assemble
    from profiler.acceptance.trace_file import write_acceptance_trace
    from profiler.latency.hardware import hardware
    from profiler.models.loading import torch_device
    from specsim.acceptance.recorded import RECORDING_FORMAT

    pair = load_pair(settings, arguments.device)
    longest = settings.longest_prompt
    if pair.positions:
        longest = min(longest, pair.positions - settings.tokens)
    work = tasks(prompts, encoder(pair.tokenizer), arguments.limit, longest)
    made_by = {"versions": versions(), "hardware": hardware(torch_device(arguments.device)).name}
    parts = RecordedBatches(arguments.out, settings.told() | made_by)
    rows = TraceWriter(pair, settings, arguments.batch).record(work, parts)
    about = {
        "format": RECORDING_FORMAT,
        "target": wanted["target"],
        "draft": wanted["draft"] or wanted["target"],
        "drafter": settings.drafter,
        "temperature": settings.temperature,
        "proposals": settings.proposals,
        "settings": wanted,
        "date": datetime.now(UTC).date().isoformat(),
        **made_by,
    }
    write_acceptance_trace(arguments.out, assemble(rows, about, lookup=settings.drafter == "lookup"))
    parts.remove()


def _settings(arguments: argparse.Namespace) -> RecordingSettings:
    given = {each.name: getattr(arguments, each.name) for each in fields(RecordingSettings)}
    width = arguments.proposals if arguments.proposals is not None else 1 if arguments.draft_sampling else PROPOSALS
    skipped, prompts = tuple(sorted(set(arguments.skip_layers))), checksums(arguments.prompts)
    return RecordingSettings(**given | {"proposals": width, "skip_layers": skipped, "prompts": prompts})


def _names(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _ngrams(text: str) -> tuple[int, int]:
    fewest, _, most = text.partition(":")
    if not fewest.isdecimal() or not (most or fewest).isdecimal():
        raise SpecsimError(f"--lookup-ngrams: {text!r}; expected the fewest and most tokens of a match, such as 1:32")
    return int(fewest), int(most or fewest)
