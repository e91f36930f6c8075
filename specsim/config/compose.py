"""From words on a command line to plain, resolved configurations: Hydra composes, every point is checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specsim.acceptance.reported import CONFIDENCE, KEYS
from specsim.config.fleet import KEY as FLEET
from specsim.config.fleet import profile_named, with_fleet
from specsim.config.groups import (
    FILE_OPTION,
    FORMS,
    holds_data,
    names,
    names_for,
    rates_typed,
    shipped_names,
)
from specsim.config.points import Point, check_typed, put
from specsim.config.schema import GROUPS, TEXTS, defaults
from specsim.config.space import SPACE
from specsim.config.suggestions import SERVERS, with_suggestions
from specsim.config.synonyms import for_trace
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import copied, expanded
from specsim.files.yaml_file import is_closed, is_path, is_plain, read_yaml, shipped
from specsim.registry.plugins import installed


def compose(point: Point, objects: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Return the configuration of one point as plain values, every key present.

    `choices` names each group's file and `followed` the suggestions that were taken up. Files named by path are read
    in place of their group. `profiles` holds by name those of `replica_profiles` that are not the first. `objects`
    holds by group what stands there for an object that Python handed in; the point names it.

    Raises
    ------
    SpecsimError
        One line naming the key and value, what was expected and the nearest valid name.
    """
    held = objects or {}
    point, fleet = with_fleet(point, held)
    for key in (*GROUPS, "belief"):
        _check_path(key, str(point.get(key, "")))
    of_groups = {key: text for key, text in point.items() if key.partition(".")[0] in GROUPS}
    of_run = {key: text for key, text in point.items() if key not in of_groups}
    of_groups, followed = with_suggestions(of_groups, servers=not any(key in of_run for key in SERVERS))
    words = tuple(_hydra_word(group, of_groups) for group in GROUPS if group in of_groups and group not in held)
    shared = _composed(words)
    chosen = {**shared.chosen, **{group: str(of_groups[group]) for group in GROUPS if group in of_groups}}
    tree = {**shared.tree, **_own_groups(shared.tree, of_groups, held)}
    settings = {key: text for key, text in (of_run | of_groups).items() if key not in GROUPS and key not in TEXTS}
    # Other points share what this one leaves alone.
    tree |= {key: copied(tree[key]) for key in {each.partition(".")[0] for each in settings} if key in tree}
    put(tree, settings, chosen)
    resolved = {**_resolved(tree, words, chosen), "choices": chosen, "followed": followed}
    if holds_data("trace", chosen["trace"]) and "trace.path" not in of_groups:
        # A shell may have put it there for a `*`: what a file is called is never resolved.
        resolved["trace"]["path"] = chosen["trace"]
    out = _text(point, "out")
    resolved["out"] = None if out is None else str(expanded(out, "out="))
    resolved["belief"] = _belief(_text(point, "belief"), resolved["profile"], held, fleet)
    if fleet:
        resolved["profiles"] = {name: profile_named(name, FLEET) for name in fleet[1:] if name != fleet[0]}
    return resolved


def _check_path(key: str, chosen: str) -> None:
    """Refuse a URL, the home folder of an unknown user, and a missing file whose name is that of a choice."""
    if not is_path(chosen) or rates_typed(key, chosen) is not None:
        return
    if "://" in chosen:
        raise SpecsimError(f"{key}={chosen}: expected a name or a file; nothing is fetched by address")
    path = expanded(chosen, f"{key}=")
    name = path.stem
    if name in names_for(key) and not path.exists():
        raise SpecsimError(f"{key}={chosen}: no such file; did you mean {key}={name}?")


def _text(point: Point, key: str) -> str | None:
    return None if str(point.get(key, "null")) == "null" else str(point[key])


def _belief(
    chosen: str | None, profile: Mapping[str, Any], held: Mapping[str, Any], fleet: Sequence[str]
) -> dict[str, Any] | None:
    """Return what schedulers believe in: a profile of its own, or the run's in another form.

    Of a `fleet` each replica's own profile gets that form: no key but the form is returned.
    """
    if chosen is None:
        return None
    if chosen in FORMS:
        if "profile" in held:
            raise SpecsimError(f"belief={chosen}: profile is an object; expected the name or the file of a profile")
        return {"form": chosen} if fleet else {**profile, "form": chosen}
    return profile_named(chosen, "belief")


class _Composed(NamedTuple):
    """Hydra's composition of choices alone: the points that make them share it, and none changes it.

    Attributes
    ----------
    tree : by key, not yet resolved. chosen : the choice of each group.
    open : the keys in which a reference leads to another key.
    """

    tree: Mapping[str, Any]
    chosen: Mapping[str, str]
    open: frozenset[str]


@cache
def _composed(words: tuple[str, ...]) -> _Composed:
    """Return what Hydra composes of choices alone."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(shipped("conf")), version_base="1.3"):
        config = hydra_compose("config", overrides=list(words), return_hydra_config=True)
    chosen = config.hydra.runtime.choices
    OmegaConf.set_struct(config, False)
    config.pop("hydra")
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    tree = defaults() | {str(key): value for key, value in plain.items()}
    tree["acceptance"] = _with_confidence(tree["acceptance"])
    tree["scheduler"].pop(SPACE, None)
    open_ = frozenset(key for key, value in tree.items() if not is_closed(value))
    return _Composed(tree, {each: chosen[each] for each in GROUPS}, open_)


def _own_groups(tree: Mapping[str, Any], point: Point, held: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the groups of a point that Hydra cannot compose: objects of Python's, and choices outside conf/."""
    elsewhere = {group: _from_elsewhere(group, tree[group], point) for group in GROUPS if _elsewhere(group, point)}
    if "acceptance" in elsewhere:
        elsewhere["acceptance"] = _with_confidence(elsewhere["acceptance"])
    return {**elsewhere, **{group: dict(held[group]) for group in GROUPS if group in held}}


def _with_confidence(acceptance: Mapping[str, Any]) -> dict[str, Any]:
    """Return an acceptance whose reported confidences may be set, whatever its file says of them."""
    held = acceptance.get(CONFIDENCE)
    if held is not None and not isinstance(held, Mapping):
        return dict(acceptance)
    return {**acceptance, CONFIDENCE: {**dict.fromkeys(KEYS), **(held or {})}}


def _resolved(tree: Mapping[str, Any], words: tuple[str, ...], chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the tree with every reference followed; what Hydra composed of `words` alone is followed once for all."""
    shared = _composed(words)
    own = {key for key, value in tree.items() if value is not shared.tree.get(key)}
    if not shared.open <= own or not all(is_closed(tree[key]) for key in own):
        return _followed(tree, chosen)
    return {
        key: _followed({key: value}, chosen)[key] if key in own else _followed_once(words, key)
        for key, value in tree.items()
    }


@cache
def _followed_once(words: tuple[str, ...], key: str) -> Any:
    shared = _composed(words)
    return _followed({key: shared.tree[key]}, shared.chosen)[key]


def _followed(tree: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return values of which none refers to another; OmegaConf, which takes long, gets those that do."""
    if all(map(is_plain, tree.values())):
        return {key: copied(value) for key, value in tree.items()}
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(OmegaConf.create(dict(tree)), resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = str(error.full_key or "")
        group = key.partition(".")[0]
        where = f"{group}={chosen[group]}: " if group in chosen else ""
        raise SpecsimError(f"{where}{key}: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise SpecsimError("settings: nested too deep to resolve, or ${...} that leads in a circle") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _hydra_word(group: str, point: Point) -> str:
    """Return a choice in Hydra's words; what Hydra cannot know of is put in later, by `_from_elsewhere`."""
    chosen = str(point[group])
    if _elsewhere(group, point):
        return f"{group}={FILE_OPTION}"
    if chosen not in names(group):
        hint = for_trace(chosen) if group == "trace" else ""
        raise SpecsimError(f"{group}={chosen}: unknown{hint or nearest(chosen, names(group))}")
    return f"{group}={point[group]}"


def _elsewhere(group: str, point: Point) -> bool:
    """Return whether a group's choice lies outside conf/: a path, or what another package installs."""
    if group not in point or group not in GROUPS:
        return False
    chosen = str(point[group])
    return (
        is_path(chosen)
        or rates_typed(group, chosen) is not None
        or (chosen not in shipped_names(group) and chosen in installed(group))
    )


def _from_elsewhere(group: str, node: Any, point: Point) -> Any:
    chosen = str(point[group])
    rates = rates_typed(group, chosen)
    if rates is not None:
        said = {"cumulative" if isinstance(rates, list) else "conditional": rates}
        body = said | dict.fromkeys(("concentration", "spread", "tail", "match"))
        return {
            "kind": "positions",
            "pair": {"target": "any", "draft": "any"},
            "width": 4,
            "levels": 16,
            "categories": {"default": body},
        }
    if holds_data(group, chosen):
        of_lengths = {"kind": "runs", "path": Path(chosen).name, **dict.fromkeys(("k", "field", "spread"))}
        return of_lengths if group == "acceptance" else {**node, "path": chosen}
    if not is_path(chosen):
        from specsim.registry.build import defaults_of

        return defaults_of(installed(group)[chosen], group)
    given = read_yaml(expanded(chosen), group=f"{group}=")
    if "defaults" in given:
        raise SpecsimError(f"{chosen}: defaults: expected every key in this one file")
    check_typed(given, f"{group}={chosen}")
    return {key: value for key, value in given.items() if (group, key) != ("scheduler", SPACE)}
