"""Write the shipped profiles that are composed from a library's kernels: ``python -m tools.compose_profiles``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from profiler.compose.profile import compose_profile
from profiler.text import write, yaml_text
from specsim.commands.parser import Parser, run

HEADING = "Written by `python -m tools.compose_profiles`; docs/composing.md says how. Seconds, bytes, tokens."
GPT_OSS = {"target": "gpt-oss-120b", "gpu": "b200_sxm", "precision": "mxfp4_mxfp8", "engine": "sglang"}
DEEPSEEK = {"target": "DeepSeek-V3", "tp": 8, "engine": "sglang"}
QWEN = {"target": "Qwen3-235B-A22B-FP8", "engine": "trtllm"}
SHIPPED: dict[str, dict[str, Any]] = {
    "deepseek_v3_mtp_8xb200": DEEPSEEK | {"gpu": "b200_sxm"},
    "deepseek_v3_mtp_8xh200": DEEPSEEK | {"gpu": "h200_sxm"},
    "gpt_oss_120b_eagle3_2xb200": GPT_OSS | {"tp": 2},
    "gpt_oss_120b_eagle3_2xh100": {"target": "gpt-oss-120b", "gpu": "h100_sxm", "tp": 2},
    "gpt_oss_120b_eagle3_b200": GPT_OSS,
    "llama70b_eagle3_4xh100": {"target": "Llama-3.3-70B", "gpu": "h100_sxm", "tp": 4},
    "llama70b_eagle3_4xh200": {"target": "Llama-3.3-70B", "gpu": "h200_sxm", "tp": 4},
    "llama70b_fp8_eagle3_2xh100": {"target": "Llama-3.3-70B", "gpu": "h100_sxm", "tp": 2, "precision": "fp8"},
    "llama8b_eagle3_h100": {"target": "Llama-3.1-8B", "gpu": "h100_sxm"},
    "llama8b_eagle3_l40s": {"target": "Llama-3.1-8B", "gpu": "l40s"},
    "qwen3_235b_eagle3_4xh200": QWEN | {"gpu": "h200_sxm", "tp": 4},
    "qwen3_235b_eagle3_8xh100": QWEN | {"gpu": "h100_sxm", "tp": 8, "ep": 8},
    "qwen3_30b_a3b_eagle3_h100": {"target": "Qwen3-30B-A3B", "gpu": "h100_sxm"},
    "qwen3_30b_a3b_eagle3_h200": {"target": "Qwen3-30B-A3B", "gpu": "h200_sxm"},
    "qwen3_32b_eagle3_2xh200": {"target": "Qwen3-32B", "gpu": "h200_sxm", "tp": 2},
    "qwen3_8b_06b_h100": {"target": "Qwen3-8B", "draft": "Qwen3-0.6B", "gpu": "h100_sxm"},
    "qwen3_8b_eagle3_h100": {"target": "Qwen3-8B", "gpu": "h100_sxm"},
}


def texts() -> Iterator[tuple[str, str]]:
    """Yield name and YAML text of every composed profile that ships."""
    for name, each in SHIPPED.items():
        yield name, yaml_text(compose_profile(**each, name=name), HEADING)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files."""
    parser = Parser(prog="python -m tools.compose_profiles", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("conf/profile"), help="folder of the profiles")
    out = parser.parse_args(argv).out
    return run(lambda: _command(out))


def _command(out: Path) -> int:
    for name, text in texts():
        write(out / f"{name}.yaml", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
