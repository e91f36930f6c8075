"""What Python gives for a setting as a plain value: numbers of numpy, paths, ranges and Series too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specsim.config.python_value import PythonValue
from specsim.errors import SpecsimError, first_line


def python_value(name: str, value: object) -> PythonValue:
    """Return a value given in Python as a plain one.

    Raises
    ------
    SpecsimError
        One line that names the key, for what is no setting.
    """
    try:
        made = PythonValue(_plain(value))
        str(made)
    except Exception as error:
        what = f"{type(value).__name__} that cannot be written as text"
        raise SpecsimError(f"{name}: a {what} ({first_line(error)}); expected a setting") from None
    return made


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.floating):
        # A short float means the shortest decimal that it is written as: 0.1, not 0.10000000149.
        return float(str(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) > 0:
        return [_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} is no number, text, list or mapping")
