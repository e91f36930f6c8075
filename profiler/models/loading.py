"""Loading of models and tokenizers by Hugging Face name, folder or GGUF file, and the libraries that do it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse
from urllib.request import getproxies

from specsim.errors import SpecsimError, beside, first_line, nearest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = ("float32", "float64", "bfloat16", "float16")
_TO_KEEP = {"pyarrow": "pyarrow", "yaml": "pyyaml", "tqdm": "tqdm"}
_TO_FIT = ("scipy", "matplotlib")
_NO_NETWORK = ("connect", "resolve", "timed out", "offline", "proxy", "name resolution", "unreachable")


def require_extra() -> None:
    """Refuse to continue without the extra ``profiler``.

    Raises
    ------
    SpecsimError
        One line naming what is missing or cannot be imported, and the command that installs it.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise SpecsimError(f'specsim profile needs {" and ".join(missing)}: pip install "specsim[profiler]"')
    for name in ("torch", "transformers"):
        try:
            import_module(name)
        except Exception as error:  # A broken installation may raise anything; the user gets one line.
            said = f"{name}, which is here but cannot be imported ({first_line(error)})"
            raise SpecsimError(f'specsim profile needs {said}: pip install "specsim[profiler]"') from None


def require_for_a_sweep() -> None:
    """Refuse a sweep whose samples could not be stored; a checkout that is not installed may lack packages.

    Raises
    ------
    SpecsimError
        One line naming what is missing.
    """
    missing = [name for module, name in _TO_KEEP.items() if find_spec(module) is None]
    if missing:
        raise SpecsimError(f"specsim profile needs {', '.join(missing)}: pip install {' '.join(missing)}")


def missing_for_a_fit() -> list[str]:
    """Return the packages missing for a fit and its figures; the samples can be fitted on another machine."""
    return [name for name in _TO_FIT if find_spec(name) is None]


def versions() -> dict[str, str]:
    """Return the versions of torch, transformers and specsim, the last of which need not be installed."""
    found = {name: metadata.version(name) for name in ("torch", "transformers")}
    try:
        return {**found, "specsim": metadata.version("specsim")}
    except metadata.PackageNotFoundError:
        return {**found, "specsim": "a checkout"}


def load_model(name: str, *, device: str = "cpu", dtype: str = "float32") -> PreTrainedModel:
    """Return a causal language model in evaluation mode, its weights dequantised into `dtype` on `device`.

    Parameters
    ----------
    name : Hugging Face name, folder, folder that holds one ``.gguf`` file, or path of such a file.
    device : ``cpu``, ``cuda`` or ``cuda:N``.
    dtype : float32, float64, bfloat16 or float16.

    Raises
    ------
    SpecsimError
        One line: unknown model, no network, unknown dtype, no such device, too little memory.
    """
    require_extra()
    import torch
    import transformers

    place, precision = torch_device(device), torch_dtype(dtype)
    source, options = _source(name)
    # Versions without the class always dequantise.
    if "gguf_file" in options and hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = _loaded(
        "model", name, lambda: transformers.AutoModelForCausalLM.from_pretrained(source, dtype=precision, **options)
    )
    try:
        model = model.to(device=place, dtype=precision)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        raise SpecsimError(f"model {name!r} does not fit on {device}: {first_line(error)}") from None
    model.eval()
    loaded: PreTrainedModel = model
    return loaded


def load_config(name: str) -> Any:
    """Return a model's configuration, without its weights, by the same names as `load_model`.

    Raises
    ------
    SpecsimError
        One line: unknown model, no network.
    """
    require_extra()
    from transformers import AutoConfig

    source, options = _source(name)
    return _loaded("model", name, lambda: AutoConfig.from_pretrained(source, **options))


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer that belongs to a model, by the same names as `load_model`.

    Raises
    ------
    SpecsimError
        One line: unknown model, no network, no tokenizer there.
    """
    require_extra()
    from transformers import AutoTokenizer

    source, options = _source(name)
    loaded: PreTrainedTokenizerBase = _loaded(
        "tokenizer", name, lambda: AutoTokenizer.from_pretrained(source, **options)
    )
    return loaded


def torch_device(device: str) -> torch.device:
    """Return the device of that name.

    Raises
    ------
    SpecsimError
        When the name is unknown, or is CUDA without a GPU.
    """
    import torch

    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise SpecsimError(f"device {device!r} is unknown; expected cpu, cuda or cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        raise SpecsimError(f"device {device!r}: this machine has no CUDA GPU that torch can use; expected device cpu")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise SpecsimError(f"device {device!r}: this machine has {torch.cuda.device_count()} CUDA GPUs")
    return torch.device(device)


def default_device(device: str | None) -> torch.device:
    """Return the device of that name, or the GPU where there is one; SpecsimError as of `torch_device`."""
    import torch

    return torch_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def torch_dtype(dtype: str) -> torch.dtype:
    """Return the torch type of that name.

    Raises
    ------
    SpecsimError
        When it is none of `DTYPES`.
    """
    import torch

    if dtype not in DTYPES:
        raise SpecsimError(f"dtype {dtype!r} is unknown{nearest(dtype, DTYPES)}")
    found: torch.dtype = getattr(torch, dtype)
    return found


def _source(name: str) -> tuple[str, dict[str, Any]]:
    """Return the source to load from, and options for it: the name of a GGUF file, or to use the cache alone."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise SpecsimError(f"model {name!r}: no such file{beside(path)}")
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if (path / "config.json").is_file():
            return str(path), {}
        if len(files) != 1:
            said = f"expected config.json or one .gguf file in the folder, not {len(files)}"
            raise SpecsimError(f"model {name!r}: {said}")
        return str(path), {"gguf_file": files[0].name}
    if path.is_absolute() or name.startswith((".", "~")):
        raise SpecsimError(f"model {name!r}: no such folder{beside(path)}")
    return name, {} if _hub_resolves() else {"local_files_only": True}


def _hub_resolves() -> bool:
    """Return whether the hub's address resolves; if not, its client would retry for half a minute."""
    from huggingface_hub.constants import ENDPOINT

    if getproxies():
        return True
    try:
        socket.getaddrinfo(urlparse(ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def _loaded(kind: str, name: str, load: Callable[[], Any]) -> Any:
    loggers = [logging.getLogger(each) for each in ("huggingface_hub", "transformers")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        return load()
    except MemoryError:
        raise SpecsimError(f"{kind} {name!r}: too little memory to load it") from None
    except Exception as error:  # Loaders may raise anything; the user gets one line.
        said = first_line(error)
        if any(word in said.lower() for word in _NO_NETWORK):
            said = "it is no folder here, not in the cache, and its hub cannot be reached (no network?)"
        raise SpecsimError(f"{kind} {name!r} cannot be loaded: {said}") from None
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
