"""The settings of a recording: the checked choices of the command line."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, nearest
from specsim.kernels.growth import MOST_PROPOSALS

DRAFTERS = ("separate", "skip", "lookup")
PROPOSALS = 8


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    """The settings that a text's rows depend on.

    Attributes
    ----------
    target, draft : models by name, folder or GGUF file; `draft` is empty unless the drafter is separate.
    skip_layers : layers that the drafter skips. lookup : fewest and most tokens of a lookup's match.
    temperature : 0 is greedy. tokens : most output tokens of a text. longest_prompt : the most tokens of a prompt.
    proposals : K. draft_sampling : whether the proposal is drawn.
    every : wrong turns are taken before positions divisible by it.
    prompts : name and checksum of each prompt file.
    """

    target: str
    draft: str
    drafter: str
    skip_layers: tuple[int, ...]
    lookup: tuple[int, int]
    temperature: float
    tokens: int
    longest_prompt: int
    proposals: int
    draft_sampling: bool
    every: int
    seed: int
    dtype: str
    prompts: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if self.drafter not in DRAFTERS:
            raise SpecsimError(f"drafter {self.drafter!r} is unknown{nearest(self.drafter, DRAFTERS)}")
        if (self.drafter == "separate") != bool(self.draft):
            raise SpecsimError(f"--draft goes with --drafter separate, and only with it; drafter is {self.drafter!r}")
        if (self.drafter == "skip") != bool(self.skip_layers):
            raise SpecsimError(f"--skip-layers goes with --drafter skip, and only with it; drafter is {self.drafter!r}")
        if self.draft_sampling and self.proposals > 1:
            raise SpecsimError(
                f"--draft-sampling with --width {self.proposals}: a tree of sampled drafts is not recorded, "
                "a sampled draft is a chain; expected --width 1"
            )
        if self.draft_sampling and self.drafter == "lookup":
            raise SpecsimError("--draft-sampling: a lookup has no distribution to sample from")
        bounds = {
            "--width": (self.proposals, 1, MOST_PROPOSALS),
            "--tokens": (self.tokens, 1, 1 << 20),
            "--longest-prompt": (self.longest_prompt, 1, 1 << 20),
            "--off-path-every": (self.every, 1, 1 << 20),
            "--seed": (self.seed, 0, (1 << 63) - 1),
            "--lookup-ngrams": (self.lookup[0], 1, self.lookup[1]),
        }
        for key, (value, low, high) in bounds.items():
            if not low <= value <= high:
                raise SpecsimError(f"{key}: {value} is not between {low} and {high}")
        if not math.isfinite(self.temperature) or not 0 <= self.temperature <= 10:
            raise SpecsimError(f"--temperature: {self.temperature} is not between 0 and 10")

    def told(self) -> dict[str, Any]:
        """Return the settings as plain JSON values, models by their short names."""
        named = asdict(self) | {"target": short_name(self.target), "draft": short_name(self.draft)}
        plain: dict[str, Any] = json.loads(json.dumps(named))
        return plain


def short_name(model: str) -> str:
    """Return a model's name without folders: a hub's name as it is, else the name of the file or folder."""
    path = Path(model).expanduser()
    if not model:
        return ""
    if path.suffix == ".gguf":
        return path.stem
    if not path.is_dir():
        return model
    files = sorted(path.glob("*.gguf"))
    return files[0].stem if len(files) == 1 and not (path / "config.json").is_file() else path.resolve().name


def checksums(paths: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return name and short SHA-256 of each file."""
    return tuple((path.name, hashlib.sha256(path.read_bytes()).hexdigest()[:16]) for path in paths)


def same_settings(there: object, wanted: Mapping[str, Any], where: str) -> None:
    """Raise SpecsimError, one line naming `where` and the first key that differs, unless both are equal."""
    if not isinstance(there, Mapping):
        raise SpecsimError(f"{where}: its settings are no mapping; give another --out or delete it")
    for key in wanted:
        if key not in there or there[key] != wanted[key]:
            raise SpecsimError(
                f"{where}: holds a recording with {key} {there.get(key)!r}, not {wanted[key]!r}; "
                "give another --out or delete it"
            )
