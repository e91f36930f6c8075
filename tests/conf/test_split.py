"""`split`: which replicas read prompts, and by which link their caches move; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim import iterations, load_run, simulate
from specsim.cluster.split import Splitting
from specsim.config.configured import from_words
from specsim.errors import SpecsimError
from specsim.metrics.requests import SPLIT_COLUMNS
from specsim.runs.plan import checked
from specsim.runs.prepare import prepare

H100, A100 = "llama8b_1b_h100", "llama8b_1b_a100"
BASE = ("trace=poisson", "requests=6", "scheduler=continuous")
LINK = "split.prefill=1 split.link_gb_per_s=50"


def checked_run(*words: str) -> Splitting | None:
    configured = from_words([*BASE, *words], sweep=False)
    checked(configured)
    return prepare(configured[0].config).simulation.split


def test_a_run_tells_what_moved(tmp_path: Path) -> None:
    settings = {"profile": H100, "replicas": 3, "split__prefill": 1, "split__link_gb_per_s": 10, "requests": 40}
    run = simulate("continuous", "poisson", rps=4, router="least_tokens", out=tmp_path / "run", passes=True, **settings)  # type: ignore[arg-type]
    stored = load_run(tmp_path / "run")
    told, rows = stored.metrics["specsim"]["split"], stored.requests
    assert list(SPLIT_COLUMNS) == [name for name in rows.columns if name.startswith("split.")]
    wanted = 131072 * rows["prompt_tokens"]
    assert (rows["split.moved_bytes"] == wanted.where(rows["output_tokens"] > 1, 0)).all()
    assert told["moved_bytes"] == rows["split.moved_bytes"].sum()
    assert told["requests_by_prefill_replica"] == [40, 0, 0]
    assert told["moved_requests"] == int((rows["output_tokens"] > 1).sum())
    assert told["mean_moving_s"] == pytest.approx(rows["split.moving_s"].mean())
    assert told["p99_moving_s"] >= told["mean_moving_s"]
    assert set(rows["replica"][rows["output_tokens"] > 1]) == {1, 2}
    assert run.metrics["specsim"]["router"] == "least_tokens"
    first_gap_s = rows["first_decode_s"] - rows["first_token_s"]
    assert (first_gap_s.dropna() >= rows["split.moving_s"][first_gap_s.notna()] * (1 - 1e-9)).all()
    assert len(iterations(run, [0])) == 1


def test_each_pool_has_a_router_of_its_own() -> None:
    words = ["router=dedicated", "replicas=6", "split.prefill=3", "split.link_gb_per_s=50"]
    checked_run(*words)
    rows = simulate(
        "continuous",
        "poisson",
        requests=30,
        router="dedicated",
        replicas=6,
        split__prefill=3,
        split__link_gb_per_s=50,
    ).requests
    moved = rows[rows["output_tokens"] > 1]
    assert (moved["replica"] - 3 == moved["split.prefill_replica"]).all()
    assert moved.groupby("slo_class")["replica"].nunique().max() == 1


def test_caches_of_another_layout_cannot_move(tmp_path: Path) -> None:
    from specsim.files.yaml_file import shipped

    text = (shipped("conf") / "profile" / f"{A100}.yaml").read_text()
    (tmp_path / "fp8.yaml").write_text(text.replace("kv_bytes_per_token: 131072", "kv_bytes_per_token: 65536"))
    fleet = f"replica_profiles=[{H100},{tmp_path}/fp8.yaml]"
    checked_run(fleet)
    with pytest.raises(SpecsimError, match="the target's cache takes 65536 or 131072 bytes per token"):
        checked_run(fleet, *LINK.split())
