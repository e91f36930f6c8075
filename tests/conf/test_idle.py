"""Settings that change nothing are refused in one line; those that matter to some run of a sweep are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim.config.configured import from_words
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.runs.plan import checked as prepared_of

BASE = ("trace=poisson", "requests=3")
OWN = "from specsim.schedulers.composed import Composed\n\n\nclass Mine(Composed):\n    pass\n"
YAML = "_target_: mine_of_idle.Mine\nmax_num_seqs: 8\nmax_num_batched_tokens: 8192\nwatermark: 0.01\nbatching: engine\n"

IDLE = [
    ("profile.gpus=64", "profile.gpus=64: changes nothing: the times of profile=llama70b_1b_4xh100 are of 4 GPUs"),
    ("profile.target.nonembedding_bytes=1", "nonembedding_bytes holds the times of"),
    ("profile.target.forms.linear.alpha_s=1e-9", "the form in use is roofline (profile.form)"),
    ("profile.draft.overhead_s=1e-3", "engine=vllm_0_15 states overhead_s"),
    ("engine=profiled profile.draft.overhead_s=1e-3", None),
    ("concurrency=2 trace.rps=3", "trace.rps=3: changes nothing: with concurrency=2 clients send as they are answered"),
    ("profile.form=linear profile.target.forms.linear.alpha_s=1e-9", None),
    ("drafter=eagle profile.draft.forms.roofline.delta_s=1e-2", "drafter=eagle drafts, not the draft model"),
    ("drafter.launch_s=1e-3 drafter.graphs=false", None),
    ("scheduler.description=mine", "description says what scheduler=adaserve is"),
    ("trace.rps=3 rps=2", "trace.rps=3: changes nothing: rps=2 goes before it"),
    ("trace.rps=3", None),
    ("router=slack", "router=slack: changes nothing: replicas=1 leaves a router no choice"),
    ("router=round_robin", None),
    ("router=dedicated router.pools={coding:1} replicas=1", "replicas=1 leaves a router no choice"),
    ("plugins=[json,numpy]", "names anything in json"),
]


def checked(*words: str, sweep: bool = False) -> None:
    prepared_of(from_words([*BASE, *words], sweep=sweep))


@pytest.mark.parametrize(("words", "said"), IDLE, ids=[words for words, _ in IDLE])
def test_a_setting_that_changes_nothing_is_refused(words: str, said: str | None) -> None:
    if said is None:
        checked(*words.split())
        return
    with pytest.raises(SpecsimError) as error:
        checked(*words.split())
    assert said in str(error.value)
    assert ": changes nothing: " in str(error.value)
    assert "\n" not in str(error.value)


def test_the_gpus_of_a_file_of_your_own_are_its_own(tmp_path: Path) -> None:
    text = (shipped("conf") / "profile" / "llama8b_1b_a100.yaml").read_text().replace("gpus: 1", "gpus: 2")
    (tmp_path / "mine.yaml").write_text(text)
    checked(f"profile={tmp_path}/mine.yaml")
    with pytest.raises(SpecsimError, match="of 2 GPUs"):
        checked(f"profile={tmp_path}/mine.yaml", "profile.gpus=4")


def test_what_matters_to_one_run_of_a_sweep_may_be_set_for_all() -> None:
    checked("drafter.graphs=true,false", "drafter.launch_s=1e-3", sweep=True)
    checked("replicas=1,2", "router=slack", sweep=True)
    checked("profile.form=roofline,linear", "profile.target.forms.linear.alpha_s=1e-9", sweep=True)
    with pytest.raises(SpecsimError, match=r"profile\.gpus=64"):
        checked("scheduler=continuous,adaserve", "profile.gpus=64", sweep=True)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "mine_of_idle.py").write_text(OWN)
    (tmp_path / "mine.yaml").write_text(YAML)
    return tmp_path


def test_a_plugin_is_used_where_some_scheduler_names_it(plugin: Path) -> None:
    named = f"plugins=[{plugin}/mine_of_idle.py]"
    checked(named, f"scheduler={plugin}/mine.yaml")
    checked(named, f"scheduler={plugin}/mine.yaml,continuous", sweep=True)
    with pytest.raises(SpecsimError, match=r"names anything in .*mine_of_idle\.py"):
        checked(named, "scheduler=continuous")
