"""Every key of a run but its groups', declared once: name, type, default, bounds, unit, and a line about it.

`Settings` is both: the declaration, and the typed values of one run. Command-line keys and their nearest names,
completion, ``--help``, ``--cfg``, identity, the keywords of Python and the table of docs/keys.md come from it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from specsim.files.checked_mapping import CheckedMapping, is_number

GROUPS = ("scheduler", "trace", "slo", "acceptance", "profile", "drafter", "engine", "router")
"""Keys that choose a file below conf/; conf/config.yaml names the default of each."""
SMALLEST, LARGEST = 1e-12, 1e12
MOST_SEED = 2**63 - 1
PERCENT = re.compile(r"(\d{1,2}(?:\.\d+)?)%", re.ASCII)


class Kind(NamedTuple):
    """How a value that is not null is read and checked, and which values there are, as docs/keys.md says it."""

    read: Callable[[CheckedMapping, str], Any]
    values: str
    below: type | None = None


def _number(least: float = SMALLEST, most: float = LARGEST, *, zero: bool = False) -> Kind:
    """Return finite numbers within bounds, both included; with `zero` 0 is allowed below them."""

    def read(node: CheckedMapping, name: str) -> float:
        value = node.values[name]
        nothing = zero and is_number(value) and value == 0
        return 0.0 if nothing else node.number(name, least=least, most=most)

    return Kind(read, f"{'0, or ' if zero else ''}{least:g} to {most:g}")


def _whole(least: int = 1, most: int = 10**9) -> Kind:
    return Kind(lambda node, name: node.whole(name, least, most), f"whole, {least} or more")


def _names(of: str) -> Kind:
    """Return lists of names or paths; a single one stands for a list of it."""

    def read(node: CheckedMapping, name: str) -> tuple[str, ...]:
        value = node.values[name]
        return (value,) if isinstance(value, str) else node.texts(name, f"a list of {of}")

    return Kind(read, f"a list of {of}")


def _given(values: str) -> Kind:
    """Return names and paths that the composition of a run has checked; of a profile's keys its name, or its form's."""

    def read(node: CheckedMapping, name: str) -> str:
        value = node.values[name]
        return str(value.get("name", value.get("form")) if isinstance(value, Mapping) else value)

    return Kind(read, values)


def _warmup(node: CheckedMapping, name: str) -> float | str | tuple[float, float]:
    value = node.values[name]
    if isinstance(value, list | tuple):
        return node.span(name, "[a, b], finite seconds a < b")
    if is_number(value) and value > 0:
        return float(value)
    share = PERCENT.fullmatch(value) if isinstance(value, str) else None
    if share is None or float(share[1]) == 0:
        node.fail(name, "seconds above 0, a share of the arrivals' span such as 10%, or [a, b]")
    return str(value)


def _part(of: type) -> Kind:
    """Return a mapping of the further keys that a class declares."""

    def read(node: CheckedMapping, name: str) -> Any:
        below = node.child(name)
        below.only((), (each.name for each in dataclasses.fields(of)))
        return _read(of, below)

    return Kind(read, "a mapping", of)


FLAG = Kind(CheckedMapping.flag, "true, false")
WARMUP = Kind(_warmup, "above 0, a share such as 10%, or [a, b]")


@dataclass(frozen=True, slots=True)
class Key:
    """A declaration, beside name, type and default.

    Attributes
    ----------
    kind : which values it takes. doc : a line about it. unit : of its values.
    alters : whether runs that differ in it alone are different runs: it changes a number, or what is kept.
    literal : whether its value is a name or a path, which Hydra's grammar never reads.
    typed : whether no file sets it: a file could have code loaded, or files written anywhere.
    """

    kind: Kind
    doc: str
    unit: str = ""
    alters: bool = True
    literal: bool = False
    typed: bool = False


def _key(default: Any, kind: Kind, doc: str, **said: Any) -> Any:
    return field(default=default, metadata={"key": Key(kind, doc, **said)})


def _below(of: type) -> dict[str, Key]:
    return {"key": Key(_part(of), str(of.__doc__))}


@dataclass(frozen=True, slots=True)
class Split:
    """Prompts are read on some replicas, and the caches move to the others, which decode."""

    prefill: int | None = _key(None, _whole(), "replicas that only read prompts; null: each decodes, too")
    link_gb_per_s: float | None = _key(
        None,
        _number(1e-9),
        "rate of each prefill replica's link; 50 is 400 Gb/s InfiniBand",
        unit="1e9 bytes/s",
    )
    link_latency_s: float | None = _key(
        None, _number(0, 1e6), "latency from the last byte to the second replica's queue; null: 0", unit="s"
    )


@dataclass(frozen=True, slots=True)
class Shed:
    """Requests that a replica refuses at their arrival."""

    waiting: int | None = _key(None, _whole(), "refuse requests that meet so many waiting ones; null: none")
    ttft: bool = _key(False, FLAG, "refuse requests whose TTFT objective one pass over all unread prompts would miss")


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of a run beside its groups'."""

    rps: float | None = _key(
        None, _number(), "true mean rate to stretch the trace to; null: the trace's own", unit="requests/s"
    )
    slo_scale: float = _key(1.0, _number(), "factor on the TPOT objective of the classes marked `scaled`")
    ttft_scale: float = _key(1.0, _number(), "factor on every TTFT objective")
    acceptance_scale: float | None = _key(
        None, _number(0, 10), "factor on the rate at which each draft token is accepted, up to 0.999; null: none"
    )
    requests: int | None = _key(None, _whole(), "only the first so many requests; null: all")
    warmup: float | str | tuple[float, float] | None = _key(
        None, WARMUP, "arrivals that are simulated and not counted; [a, b] counts those between", unit="s"
    )
    seed: int = _key(0, _whole(0, MOST_SEED), "random seed of classes, acceptance, synthetic and resampled traces")
    concurrency: int | None = _key(
        None, _whole(), "clients that each wait for their answer; null: requests arrive as the trace says"
    )
    replicas: int = _key(1, _whole(), "servers, unless the trace suggests more; the router says who serves a request")
    replica_profiles: tuple[str, ...] | None = _key(
        None, _names("profiles"), "profile of each replica, the first of them the run's own; null: all have it"
    )
    split: Split = field(default=Split(), metadata=_below(Split))
    timeout_s: float | None = _key(None, _number(1e-6, 1e9), "request timeout, from arrival; null: none", unit="s")
    shed: Shed = field(default=Shed(), metadata=_below(Shed))
    any_fit: bool = _key(
        False, FLAG, "allow profiles and engines that are not fit for use, and acceptances recorded on another target"
    )
    cost_model: str | None = _key(
        None,
        _given("a profile, linear, roofline, table"),
        "cost model of schedulers: a profile, or the run's own in that form; null: the truth",
        literal=True,
    )
    block_tokens: int = _key(16, _whole(), "size of a block of the paged cache", unit="tokens")
    prefix_caching: bool = _key(
        False, FLAG, "keep the blocks of prompts for later ones that begin alike, by the trace's hash_ids"
    )
    # Seconds a scheduler thinks where it selects among drafted tokens. Chosen by us so that trace=adaserve_fig8
    # profile=adaserve_artifact_llama70b spends the 0.3-0.4% of its time that AdaServe 6.3 reports.
    selection_s: float = _key(
        3.0e-4, _number(zero=True), "time in which a scheduler selects among drafted tokens, a pass", unit="s"
    )
    selection_token_s: float = _key(5.0e-7, _number(zero=True), "further time in which it does, a candidate", unit="s")
    host_bytes_per_s: float = _key(
        2.5e10,
        _number(),
        "rate of each GPU's link to the host, where preempted caches move: PCIe 4 x16",
        unit="bytes/s",
    )
    passes: bool = _key(False, FLAG, "also write one row per forward pass")
    step_limit_s: float | None = _key(
        60,
        _number(1e-3, 1e7),
        "limit on the wall time of a scheduler between two passes; null: none",
        unit="s",
        alters=False,
    )
    plugins: tuple[str, ...] = _key(
        (), _names("module names"), "modules or .py files that a scheduler's _target_ may name", typed=True
    )
    observers: tuple[str, ...] | None = _key(
        None,
        _names("classes"),
        "classes of plugins= that see every pass (docs/observers.md), as module.Class; null: none",
    )
    out: str | None = _key(
        None,
        _given("a folder"),
        "run folder; null makes one below results/runs",
        alters=False,
        literal=True,
        typed=True,
    )


class Declared(NamedTuple):
    """A key by its dotted name, its default as YAML has it, its type as Python writes it, and what is said of it."""

    name: str
    default: Any
    type: str
    key: Key


def settings_in(config: Mapping[str, Any]) -> Settings:
    """Return the typed values of a configuration; a key that it lacks has its default.

    Raises
    ------
    SpecsimError
        One line naming the key, the value and what was expected.
    """
    settings: Settings = _read(Settings, CheckedMapping("", "", config))
    return settings


def written(value: object) -> str:
    """Return a typed value as a user writes it."""
    if isinstance(value, tuple):
        return f"[{','.join(map(written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def defaults(of: type = Settings) -> dict[str, Any]:
    """Return the default of each key as plain values."""
    return {each.name: _plain(each.default) for each in dataclasses.fields(of)}


def declared(of: type = Settings, above: str = "") -> Iterator[Declared]:
    """Yield every key that holds a value, those below a mapping by their dotted names."""
    for each in dataclasses.fields(of):
        key: Key = each.metadata["key"]
        if key.kind.below is not None:
            yield from declared(key.kind.below, f"{each.name}.")
        else:
            kind = "str | Path | None" if key.literal else str(each.type)
            yield Declared(above + each.name, _plain(each.default), kind, key)


def lines() -> dict[str, str]:
    """Return by key a line about it, its unit in brackets."""
    return {each.name: each.key.doc + (f" ({each.key.unit})" if each.key.unit else "") for each in declared()}


def commented(yaml: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a configuration's YAML, with a comment behind each key that is declared here."""
    said, above = lines(), ""
    for line in yaml:
        name = line.lstrip().partition(":")[0]
        below = line.startswith((" ", "-"))
        above = above if below else name
        comment = said.get(f"{above}.{name}" if below else name)
        yield f"{line}  # {comment}" if comment else line


@cache
def known_keys() -> Mapping[str, tuple[str, ...]]:
    """Return the keys of a run, and those below each that holds any; the groups hold their files'."""
    known = {name: tuple(value) if isinstance(value, dict) else () for name, value in defaults().items()}
    return known | dict.fromkeys(GROUPS, ())


def _read(of: type, node: CheckedMapping) -> Any:
    found = {}
    for each in dataclasses.fields(of):
        if each.name in node.values:
            absent = node.values[each.name] is None and "None" in str(each.type)
            found[each.name] = None if absent else each.metadata["key"].kind.read(node, each.name)
    return of(**found)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return defaults(type(value))
    return list(value) if isinstance(value, tuple) else value


TEXTS = tuple(each.name for each in declared() if each.key.literal)
"""Keys whose values are names or paths and never pass through Hydra's grammar, as those of the groups."""
TYPED = tuple(each.name for each in declared() if each.key.typed)
"""Keys that no file sets."""
UNALTERING = tuple(each.name for each in declared() if not each.key.alters)
"""Keys that change no number, and nothing of what is kept."""
