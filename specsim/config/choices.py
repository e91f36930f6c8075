"""What a run chose in each group, as a typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.config.groups import shipped_names
from specsim.config.schema import GROUPS
from specsim.files.paths import is_path, shipped


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run chose in a group.

    Attributes
    ----------
    name : as typed, a name or a path. values : the keys of its file, as set. suggested_by : the choice that brought it
        along, "" where none did.
    """

    group: str
    name: str
    values: Mapping[str, Any]
    suggested_by: str = ""

    def __str__(self) -> str:
        return f"{self.group}={self.name}"

    @property
    def brought(self) -> str:
        """The group and its choice, and the choice that suggested it."""
        return f"{self} (with {self.suggested_by})" if self.suggested_by else str(self)

    @property
    def folder(self) -> Path:
        """The folder that paths in its file are relative to; what is installed has none but the user's."""
        if is_path(self.name):
            return Path(self.name).expanduser().parent
        return shipped("conf") / self.group if self.name in shipped_names(self.group) else Path()


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of a run.

    Attributes
    ----------
    profiles : by name those of ``replica_profiles`` that are not the first.
    followed : by choice the settings that it suggested and that were taken up.
    """

    scheduler: Choice
    trace: Choice
    slo: Choice
    acceptance: Choice
    profile: Choice
    drafter: Choice
    engine: Choice
    router: Choice
    profiles: Mapping[str, Mapping[str, Any]]
    followed: Mapping[str, list[str]]

    @property
    def suggestion_note(self) -> str | None:
        """A line about the settings that the chosen files brought along."""
        said = [f"{', '.join(settings)} (with {suggests})" for suggests, settings in self.followed.items()]
        return f"{', '.join(said)}, as suggested there" if said else None


def choices_in(config: Mapping[str, Any]) -> Choices:
    """Return the choices of a composed configuration."""
    chosen, followed = config["choices"], config.get("followed", {})
    suggested = {setting: suggests for suggests, settings in followed.items() for setting in settings}
    groups = {
        each: Choice(each, chosen[each], config[each], suggested.get(f"{each}={chosen[each]}", "")) for each in GROUPS
    }
    return Choices(**groups, profiles=config.get("profiles", {}), followed=followed)
