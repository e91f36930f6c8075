"""A tiny experiment, for the tests of `studies.reproduction`."""

from __future__ import annotations

from pathlib import Path

TINY = """\
paper: "A paper"
source: "its page 1"
choices: ["The paper names no lengths: those of trace=poisson."]
axis: {key: rps, label: "Request rate (requests/s)", values: [1, 2, 4]}
seeds: [0, 1]
quick: {values: [1, 4], requests: 4}
common: [trace=poisson, requests=6, profile=llama8b_1b_h100]
systems:
  Batches: [scheduler=continuous]
  One by one: [scheduler=fcfs]
figures:
  tiny_attainment:
    title: "A paper, Fig. 1: attainment"
    claim: "Batches attain more"
    metric: slo_attainment
    scale: 100
    unit: "%"
    label: "Attainment (%)"
    gap: points
    why: {Batches: "Its prompts are short."}
    values: {Batches: [99, 98, 90], One by one: [90, 50, 20]}
  tiny_latency:
    title: "A paper, Fig. 2: latency"
    claim: "One by one waits"
    metric: mean_e2el_s
    scale: 1
    unit: s
    label: "Mean latency (s)"
    gap: percent
    notes: ["Its prompts were longer."]
    values: {One by one: [1, 2, 4]}
"""


def tiny(folder: Path, text: str = TINY) -> Path:
    """Return the experiment's file, written into `folder`."""
    file = folder / "tiny.yaml"
    file.write_text(text, encoding="utf-8")
    return file
