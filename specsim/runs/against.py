"""The same run with other schedulers: same requests, same acceptance, same servers."""

from __future__ import annotations

from specsim.config.compose import compose
from specsim.config.configured import Configured
from specsim.config.points import points
from specsim.errors import SpecsimError


def against(chosen: Configured, named: str) -> list[Configured]:
    """Return a run with each of the `named` schedulers (NAME,NAME), as their files have them, in the place of its own.

    Raises
    ------
    SpecsimError
        One line for a name that is unknown or given twice, and for the run itself.
    """
    config, made = chosen.config, []
    profile = config["choices"]["profile"]
    try:
        for point in points([f"scheduler={named}"], sweep=True):
            name = point["scheduler"]
            keys = compose({"scheduler": name, "profile": profile})["scheduler"]
            if keys == config["scheduler"]:
                raise SpecsimError(f"{name} is the scheduler of the run itself; expected others")
            choices = {**config["choices"], "scheduler": name}
            made.append(
                Configured({**chosen.point, **point}, {**config, "scheduler": keys, "choices": choices, "followed": {}})
            )
    except SpecsimError as error:
        raise SpecsimError(f"--against {named}: {error}") from error
    return made
