"""The files of a tuning: settings that any command takes, tables, and what a serving engine reads."""

from __future__ import annotations

from pathlib import Path

from specsim.files.staging import in_one_step
from specsim.metrics.tuned import Tuned
from specsim.store.writer import yaml_text


def write_tuned(tuned: Tuned, root: Path) -> list[Path]:
    """Write the best configuration of each scheduler as a scheduler's file, the tables, and the export; return them."""
    texts: dict[str, str] = {}
    for each in tuned.candidates:
        mean = f"{each.tuned:.4g}"
        described = {**each.keys, "description": f"{each.name}: tuned for {tuned.of}, {mean} on the part that tuned it"}
        texts.setdefault(f"{Path(each.scheduler).stem}.yaml", yaml_text(described, sort_keys=False))
    texts["tuned.csv"] = tuned.table.to_csv(index=False)
    texts["conditions.csv"] = tuned.conditions.to_csv(index=False)
    texts |= {} if tuned.export is None else tuned.export.files
    for name, text in texts.items():
        with in_one_step(root / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return [root / name for name in texts]
