"""Every parameter of every YAML in conf/scheduler: a change of it changes the output of a small run."""

from __future__ import annotations

import pytest

from tests.conf.test_scheduler_yaml import parameters as plain_parameters
from tests.schedulers.changes import shows
from tests.schedulers.parameters import INERT, OF_ONE_YAML, OWNERS, Parameter, change_of, parameters, whole_path

EVERY = parameters()


def first_of_each_change() -> list[Parameter]:
    """Return for each change the first YAML that it is one of."""
    found: dict[tuple[str, str, str], Parameter] = {}
    for each in EVERY:
        found.setdefault((each.owner, each.key, repr(change_of(each))), each)
    return list(found.values())


FIRST = set(first_of_each_change())


def test_no_parameter_is_without_a_change() -> None:
    missing = [f"{each.scheduler}: {each.path} (of {each.owner})" for each in EVERY if change_of(each) is None]
    assert not missing, f"say in parameters.py how these change a run: {missing}"


def test_the_walk_finds_every_plain_value() -> None:
    """A walk of its own in tests/conf counts the same, but for the choices of a function."""
    walked = {(each.scheduler, each.path) for each in EVERY if not each.path.endswith("._target_")}
    assert walked == {(name, ".".join(path)) for name, path in plain_parameters()}


def test_no_change_is_left_over() -> None:
    used = {(each.owner, each.key) for each in EVERY}
    assert {(owner, key) for owner, changes in OWNERS.items() for key in changes} <= used
    assert set(OF_ONE_YAML) <= {(each.scheduler, each.path) for each in EVERY}


@pytest.mark.parametrize(
    "parameter",
    [each if each in FIRST else pytest.param(each, marks=pytest.mark.slow) for each in EVERY],
    ids=lambda each: f"{each.scheduler}-{each.path}",
)
def test_a_change_shows(parameter: Parameter) -> None:
    """A change of an inert one does not.

    Where the shipped values hide it (one seat, an ample budget), `first` takes that away.

    That a value arrives in every YAML's object is shown beside, in tests/conf/test_scheduler_yaml.py.
    """
    change = change_of(parameter)
    assert change is not None
    first = {whole_path(parameter.scheduler, end): value for end, value in change.first.items()}
    first.pop(parameter.path, None)
    inert = (parameter.scheduler, parameter.path) in INERT
    assert shows(parameter.scheduler, parameter.path, change.value, first, change.scene) is not inert
