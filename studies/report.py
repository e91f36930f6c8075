"""Shared by the studies: intervals over seeds, the rows that they keep, and pages whose figures the site draws."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, first_line
from specsim.files.staging import in_one_step
from specsim.metrics.seeds import LEVEL

if TYPE_CHECKING:
    from pandas import DataFrame

IMAGE = re.compile(r"!\[([^\]]*)\]\((figures/\w+\.png)\)")


def half_width(by_seed: Any) -> Any:
    """Return the half width of the 95% interval of a mean over rows (Student's), of each column; 0 for one row."""
    count = len(by_seed)
    return by_seed.std(axis=0, ddof=1) / sqrt(count) * students_t(count) if count > 1 else 0 * by_seed.mean(axis=0)


@cache
def students_t(seeds: int) -> float:
    """Return by how many standard errors the 95% interval of a mean over seeds reaches to either side."""
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, seeds - 1))


def keep(rows: DataFrame, file: Path, about: Mapping[str, str]) -> Path:
    """Write rows and facts about them as Parquet, whole or not at all; return the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(about)
    with in_one_step(file) as partial:
        pq.write_table(table, partial, compression="zstd")
    return file


def kept(file: Path) -> DataFrame:
    """Return the rows that `keep` wrote, the facts in their `attrs`.

    Raises
    ------
    SpecsimError
        When there is no such file, or it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.is_file():
        raise SpecsimError(f"{file}: no such file; expected the working folder to be the repository's root")
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise SpecsimError(f"{file}: cannot be read: {first_line(error)}") from None
    about = table.schema.metadata or {}
    rows: DataFrame = table.replace_schema_metadata(None).to_pandas()
    rows.attrs = {key.decode(): value.decode() for key, value in about.items()}
    return rows


def without_images(text: str) -> str:
    """Return Markdown with the caption of each figure in its place: the site alone holds what can be drawn."""
    return IMAGE.sub(r"*On the site (`make docs`): \1.* <!-- \2 -->", text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(without_images(Path(name).read_text(encoding="utf-8")), encoding="utf-8")
