"""Words that specsim has not, most of them Hydra's, and what to do here instead."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.errors import SpecsimError

OWN_FILES = "specsim reads its own conf/; a file of yours stands in for a group's: scheduler=./mine.yaml"
FLAGS = {
    ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd"): OWN_FILES,
    ("--info", "-i"): "`specsim run --cfg job` shows the settings, `specsim list` what can be chosen",
    ("--hydra-help",): "Hydra composes the settings and runs nothing here; see `specsim run --help`",
    ("--run", "-r"): "a run is the default; expected key=value, or -m for a sweep",
    ("--experimental-rerun",): "the same settings give the same bytes; they stand in config.yaml of the run folder",
    ("--shell-completion", "-sc"): 'expected `eval "$(specsim completion bash)"`, or zsh or fish',
}
LAUNCHER = "expected --jobs N, --executor NAME beside -m; with out=DIR, a sweep that was cut goes on where it stopped"
KEYS = {
    "hydra.run": "expected out=DIR",
    "hydra.sweep": "expected out=DIR; each point has a folder below it",
    "hydra.sweeper": "expected -m with commas, range(), choice() or glob()",
    "hydra.launcher": LAUNCHER,
    "hydra.searchpath": OWN_FILES,
}
GUESSED = {
    "scheduler.k": "scheduler.num_speculative_tokens",
    "scheduler.draft_tokens": "scheduler.num_speculative_tokens",
    "jobs": "--jobs N beside -m",
    "executor": "--executor NAME beside -m",
}
"""Keys that one may try, and what means it."""
OTHER_KEYS = "Hydra composes the settings and runs nothing here; its own settings change nothing"


def for_flag(words: Sequence[str]) -> str:
    """Return a line about the first of the words that is a flag of Hydra's, empty where none is."""
    for word in words:
        flag = word.partition("=")[0]
        for flags, instead in FLAGS.items():
            if flag in flags:
                return f"{flag}: {instead}"
    return ""


def refuse_key(word: str) -> None:
    """Refuse a key that has another name here, and what only Hydra knows: ~key, key@package=, hydra.key=, hydra/group=.

    Raises
    ------
    SpecsimError
        One line that tells what to do instead.
    """
    key, equals, _ = word.partition("=")
    key = key.strip().lstrip("+")
    if key.startswith("~"):
        raise SpecsimError(f"{word}: nothing can be taken away; expected {key[1:]}=null, or another choice")
    if "@" in key[1:] and equals:
        raise SpecsimError(f"{word}: a group has one place; expected {key.partition('@')[0]}=NAME")
    if key in GUESSED:
        raise SpecsimError(f"{key}: unknown key; expected {GUESSED[key]}")
    head = key.replace("/", ".").split(".")[:2]
    if head[0] == "hydra":
        raise SpecsimError(f"{key}: {KEYS.get('.'.join(head), OTHER_KEYS)}")
