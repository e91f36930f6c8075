"""What a run's configuration chose in each group, as messages name it and as paths in its files are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsim.config.groups import shipped_names
from specsim.files.paths import is_path, shipped


def source(group: str, config: Mapping[str, Any]) -> str:
    """Return a group and its choice, ``profile=llama8b_1b_h100``."""
    return f"{group}={config['choices'][group]}"


def brought(group: str, config: Mapping[str, Any]) -> str:
    """Return a group and its choice, and what suggested it."""
    plain = source(group, config)
    sources = [suggests for suggests, settings in config.get("followed", {}).items() if plain in settings]
    return f"{plain} (with {sources[0]})" if sources else plain


def folder(group: str, config: Mapping[str, Any]) -> Path:
    """Return the folder that paths in a group's file are relative to; what is installed has none but the user's."""
    chosen = config["choices"][group]
    if is_path(chosen):
        return Path(chosen).expanduser().parent
    return shipped("conf") / group if chosen in shipped_names(group) else Path()


def suggestion_note(config: Mapping[str, Any]) -> str | None:
    """Return a line about the settings that the chosen files brought along."""
    followed = [f"{', '.join(settings)} (with {suggests})" for suggests, settings in config.get("followed", {}).items()]
    return f"{', '.join(followed)}, as suggested there" if followed else None
