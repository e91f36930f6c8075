"""aiconfigurator-core: what it ships, and what of it is composed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError, nearest

if TYPE_CHECKING:
    from profiler.compose.models import Model

PACKAGE = "aiconfigurator-core"
LICENCE = "Apache-2.0"
ENGINES = ("vllm", "sglang", "trtllm")
FAMILIES = ("LLAMA", "MOE", "DEEPSEEK", "DEEPSEEKV4")
"""Of the library's families of models, those whose operators are told apart here."""
PRECISIONS = {
    "bf16": ("bfloat16", "bfloat16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8_block"),
    "mxfp4": ("bfloat16", "w4a16_mxfp4"),
    "mxfp4_mxfp8": ("bfloat16", "w4a8_mxfp4_mxfp8"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "int4": ("int4_wo", "int4_wo"),
}
"""The library's modes of the products and of the experts' products."""
OF_EXPERTS = ("mxfp4", "mxfp4_mxfp8")
HARDWARE = {
    "a100_sxm": "NVIDIA A100-SXM4-80GB",
    "h100_sxm": "NVIDIA H100-SXM5-80GB",
    "h200_sxm": "NVIDIA H200",
    "b200_sxm": "NVIDIA B200",
    "b300_sxm": "NVIDIA B300",
    "gb200": "NVIDIA GB200",
    "gb300": "NVIDIA GB300",
    "l40s": "NVIDIA L40S",
    "rtx_pro_6000_server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
OWN = "its own precision"


class ComposedPlacement(NamedTuple):
    """GPUs, an engine, and how a model lies on them; `precision` None and `cache` "auto" are the checkpoint's own."""

    gpu: str
    engine: str
    tp: int
    ep: int
    precision: str | None
    cache: str
    pp: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs: those of each stage of the pipeline, and the stages."""
        return self.tp * self.pp


class NoKernels(SpecsimError):
    """The library has no kernels for what is asked of it."""


def described(place: ComposedPlacement) -> str:
    """Return a placement in words."""
    return f"{place.gpus} x {place.gpu} with {place.engine} in {place.precision or OWN}"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's own lines off the terminal: their content is refused or stands in the profile."""
    logger = logging.getLogger("aiconfigurator_core")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@cache
def sdk() -> Any:
    """Return the library's package; `SpecsimError` where it is not installed."""
    try:
        import aiconfigurator_core as core
        from aiconfigurator_core.sdk import common, config, config_builders, engine, models, perf_database, utils
        from aiconfigurator_core.sdk.backends import factory
    except ImportError as error:
        raise SpecsimError(
            f'specsim profile compose needs {PACKAGE} ({error}): pip install "specsim[compose]"'
        ) from None
    return SimpleNamespace(
        core=core,
        common=common,
        engine=engine,
        models=models,
        utils=utils,
        config=config,
        databases=perf_database,
        get_backend=factory.get_backend,
        model_config=config_builders.build_model_config,
    )


def version() -> str:
    """Return the library's version."""
    return metadata.version(PACKAGE)


def config_files() -> dict[str, Path]:
    """Return the configurations that the library ships, by the names of their models."""
    files = (Path(sdk().core.__file__).parent / "model_configs").glob("*_config.json")
    names = ((file.name.removesuffix("_config.json").replace("--", "/"), file) for file in sorted(files))
    return {name: file for name, file in names if not name.endswith("_hf_quant")}


def served_points() -> Any:
    """Return the library's table of served points of whole engines: a pandas frame."""
    import pandas as pd

    return pd.read_csv(Path(sdk().core.__file__).parent / "systems" / "silicon_sample.csv", low_memory=False)


def config_in(folder: str) -> dict[str, Any]:
    """Return the configuration in a folder, with what the library infers of precisions."""
    with quiet():
        return deepcopy(dict(sdk().utils.get_model_config_from_model_path(folder)["raw_config"]))


def gpu_names() -> tuple[str, ...]:
    """Return the names of the GPUs that the library has kernels of."""
    slots = sdk().databases.get_version_slots
    return tuple(name for name in HARDWARE if slots(name, ENGINES[0]))


def family_of(architecture: str) -> str:
    """Return the library's family of an architecture that it has."""
    return str(sdk().common.ARCHITECTURE_TO_MODEL_FAMILY[architecture])


def check_architecture(model: Model) -> None:
    """Refuse a model whose operators the library does not have, or are not told apart here."""
    families = sdk().common.ARCHITECTURE_TO_MODEL_FAMILY
    known = [each for each, family in families.items() if family in FAMILIES]
    given = model.config["architectures"][0]
    if given not in known:
        raise SpecsimError(f"{model.source}: {given} is not composed yet; expected one of {', '.join(known)}")


def check_placement(place: ComposedPlacement) -> None:
    """Refuse a GPU, an engine or a precision that the library does not have."""
    for said, value, known in (
        ("--gpu", place.gpu, gpu_names()),
        ("--engine", place.engine, ENGINES),
        ("--precision", "bf16" if place.precision is None else place.precision, tuple(PRECISIONS)),
        ("--kv-cache-dtype", place.cache, ("auto", "bf16", "fp8")),
    ):
        if value not in known:
            near = nearest(value, [each for each in known if each[:1] == value[:1].lower()], 0.5)
            meant = near if "did you mean" in near else ""
            raise SpecsimError(f"{said} {value}: unknown{meant}; expected one of {', '.join(known)}")
