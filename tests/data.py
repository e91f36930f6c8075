"""The real data of a machine that has it. Every other test sees none, so it shows the same on every machine."""

import os
from pathlib import Path

from specsim.workload.published import DATA_VARIABLE

KEPT = "SPECSIM_TEST_DATA"
# The workers of xdist inherit what the first process left here.
os.environ.setdefault(KEPT, os.environ.get(DATA_VARIABLE, ""))
os.environ[DATA_VARIABLE] = ""


def real_file(name: str) -> Path | None:
    """Return the file or folder ``name`` in the first data folder that holds it."""
    folders = [Path(each) for each in os.environ[KEPT].split(os.pathsep) if each]
    return next((each / name for each in folders if (each / name).exists()), None)
