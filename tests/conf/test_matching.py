"""Files that go together are suggested, unless the user says more; a note tells of those that do not match or fit."""

import re

import pytest
import yaml

from specsim.acceptance import curves
from specsim.acceptance.loading import acceptance_from_mapping, pair_from_mapping, same_model
from specsim.api import simulate
from specsim.config.compose import compose
from specsim.config.configured import from_point
from specsim.files.yaml_file import read_yaml, shipped
from specsim.runs.prepare import prepare
from specsim.schedulers.loading import scheduler_factory
from tests.made import refusal


def names_of(group):
    return sorted(path.stem for path in (shipped("conf") / group).glob("*.yaml") if path.stem != "file")


ACCEPTANCES = names_of("acceptance")
SMALL = {"trace": "poisson", "requests": "3"}


@pytest.fixture
def few_rows(monkeypatch):
    """Let deep pools have eight rows: no note depends on them, and to draw them takes most of a test's time."""
    monkeypatch.setattr(curves, "LEAST_POOL_ROWS", 8)
    monkeypatch.setattr(curves, "DEEP_SHARE", curves.POOL_ROWS)


def pair_note(**point):
    notes = prepare(from_point({**SMALL, **point})).drafting_notes
    return next((note for note in notes if " means " not in note), None)


def budget_notes(**point):
    point = {key.replace("__", "."): value for key, value in point.items()}
    return [note for note in prepare(from_point({**SMALL, **point})).notes if "verify_tokens" in note]


@pytest.mark.parametrize("name", ACCEPTANCES)
def test_every_acceptance_names_its_pair_and_says_that_the_spread_between_requests_is_assumed(name):
    """Published rates and lengths do not tell the spread."""
    folder = shipped("conf") / "acceptance"
    mapping = read_yaml(folder / f"{name}.yaml")
    made = acceptance_from_mapping(mapping, name, folder)
    if mapping["kind"] in ("length", "positions"):
        assert str(made.notes).count("; spread between requests assumed: 0.5") == len(mapping["categories"])
    pair = pair_from_mapping(mapping, name, made.evidence)
    assert mapping["pair"] == {"target": pair.target, "draft": pair.draft} if pair else None
    any_pair = name in ("bernoulli", "medusa") or name.startswith("pinned_")
    assert (pair.target == "any") == any_pair if pair else None


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCEPTANCES)
def test_every_acceptance_is_as_long_as_its_line_says(name):
    """`specsim list acceptance` shows pair, data, length and k; the first length is the default category's."""
    line = read_yaml(shipped("conf") / "acceptance" / f"{name}.yaml")["description"]
    found = re.search(r"length ([\d.]+).* at k = (\d+)", line)
    assert found, line
    length, k = float(found[1]), int(found[2])
    point = {"requests": 200, "slo": "one", "acceptance": name, "any_fit": True}
    drafted = simulate("vllm_spec", "poisson", **point, scheduler__num_speculative_tokens=k).requests
    assert 1 + drafted["accepted_tokens"].sum() / drafted["verifications"].sum() == pytest.approx(length, rel=0.03)


def test_another_pair_is_a_loud_note_where_something_is_drafted():
    note = pair_note(profile="llama8b_1b_h100")
    said = "acceptance=llama70b_1b is of Llama-3.1-70B with Llama-3.2-1B, the run is of Llama-3.1-8B with Llama-3.2-1B"
    assert note.startswith(f"MISMATCHED PAIR: {said}")
    shared = {"trace": "poisson", "requests": 3, "profile": "llama8b_1b_h100"}
    assert note in simulate("vllm_spec", **shared).notes
    assert note not in simulate("continuous", **shared).notes


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(
    ("acceptance", "said"),
    [
        *(("gpt_oss_20b_eagle3", "; chat (chats), summarization:"), ("smollm2_skip_curves", ": chat (chats):")),
        ("eagle", ""),
    ],
)
def test_classes_without_a_category_of_their_name_are_said_to_take_the_default(acceptance, said):
    point = {**SMALL, "acceptance": acceptance, "slo.classes.chat.acceptance": "chats"}
    note = prepare(from_point(point)).drafting_notes[-1]
    assert said in note
    assert note.endswith("default (no category of that name)") == bool(said)


@pytest.mark.usefixtures("few_rows")
def test_a_head_s_acceptance_is_said_to_be_of_short_texts_where_prompts_are_long(tmp_path):
    shared = {"drafter": "eagle3", "acceptance": "llama8b_eagle3", "profile": "llama8b_1b_h100"}
    long = pair_note(**shared, **{"trace.prompt_tokens": "8192"})
    assert long.startswith("acceptance=llama8b_eagle3 is of short texts, and prompts have 8,192 tokens in the mean: ")
    assert pair_note(**shared, **{"trace.prompt_tokens": "4096"}) is None
    assert pair_note(profile="llama70b_1b_4xh100", **{"trace.prompt_tokens": "8192"}) is None
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(read_yaml(shipped("conf") / "acceptance" / "llama8b_eagle3.yaml")))
    assert pair_note(**shared | {"acceptance": str(own)}, **{"trace.prompt_tokens": "8192"}) is None, (
        "measured anywhere"
    )


@pytest.mark.usefixtures("few_rows")
def test_what_belongs_together_or_is_generic_says_nothing():
    assert pair_note() is None
    assert pair_note(drafter="eagle", profile="llama8b_1b_h100") is None
    assert pair_note(drafter="medusa", profile="vicuna7b_68m_a100") is None
    assert pair_note(drafter="lookup", profile="smollm2_skip_cpu", scheduler="vllm_spec") is None


@pytest.mark.parametrize("point", [{"scheduler": "smartspec_lookup"}, {"acceptance": "smollm2_skip"}], ids=str)
def test_a_recording_on_another_target_is_refused_unless_asked_for(point):
    assert re.search(r"recorded on SmolLM2-135M.*Llama-3\.1-70B; .*any_fit=true$", refusal(pair_note, **point))
    assert pair_note(**point, any_fit="true").startswith("MISMATCHED PAIR")


def test_an_acceptance_that_names_no_pair_says_that_it_is_not_checked(tmp_path):
    mapping = read_yaml(shipped("conf") / "acceptance" / "llama70b_1b.yaml")
    del mapping["pair"]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(mapping))
    assert "names no pair" in pair_note(acceptance=str(tmp_path / "a.yaml"))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"kind": "bernoulli", "alpha": 0.5, "width": 4}))
    assert pair_note(acceptance=str(tmp_path / "b.yaml")) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *(("Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", True), ("any", "Vicuna-7B", True)),
        *(("Qwen3-8B", "Qwen3-8B.4bit", True), ("SmolLM2-135M", "SmolLM2-135M less 3 layers", False)),
        *(("SmolLM2-135M less 3 layers", "SmolLM2-135M less 30 layers", False), ("Qwen2.5-3B", "Qwen2.5-32B", False)),
        *(("Qwen3-235B-A22B", f"Qwen3-235B-A22B-{end}", end == "FP8") for end in ("FP8", "2507")),
        *(("Qwen3-30B-A3B", "Qwen3-30B-A3B-Thinking-2507", False), ("DeepSeek-V3", "DeepSeek-V3.1", False)),
        ("Mixtral-8x7B", "Mixtral-8x7B-v0.1", True),
    ],
)
def test_names_of_one_model(one, other, same):
    for a, b in ((one, other), (other, one)):
        assert same_model(a, b) == same


def test_a_budget_past_the_bend_names_both_numbers():
    assert not budget_notes()
    (note,) = budget_notes(scheduler__verify_tokens="512")
    assert note.startswith("scheduler.verify_tokens=512 lies past the bend of profile=llama70b_1b_4xh100, 367 tokens")
    assert not budget_notes(scheduler__verify_tokens="366")
    assert len(budget_notes(scheduler__verify_tokens="367")) == 1
    assert not budget_notes(scheduler="continuous")
    assert not budget_notes(profile__form="linear"), "a line has no bend"
    assert len(budget_notes(scheduler="laps_adaserve", scheduler__verify_tokens="400")) == 1
    note = budget_notes(profile="adaserve_artifact_llama70b")[-1]
    assert "lies past the bend of profile=adaserve_artifact_llama70b, 69.82 tokens" in note


@pytest.mark.parametrize("scheduler", ["adaserve", "laps_adaserve"])
def test_a_budget_without_room_for_every_root_is_refused(scheduler):
    point = {"scheduler": scheduler, "scheduler.max_num_seqs": "600", "scheduler.verify_tokens": "512"}
    said = refusal(prepare, from_point({**SMALL, **point}))
    assert f"scheduler={scheduler}: max_num_seqs=600 exceeds verify_tokens=512" in said


@pytest.mark.parametrize("scheduler", ["adaserve", "laps_adaserve", "equal_greedy"])
def test_a_budget_of_auto_is_what_profiling_chains_finds(scheduler):
    made = prepare(from_point({**SMALL, "scheduler": scheduler})).simulation.scheduler()
    assert [made.speculation.budget(requests) for requests in (0, 1, 8, 16, 64)] == [48, 48, 48, 80, 256]
    assert [made.speculation.shape(requests).depth for requests in (2, 8, 16, 64)] == [5, 4, 4, 3]


def test_a_budget_of_auto_follows_the_profile():
    found = {}
    for profile in ("vicuna7b_68m_a100", "llama8b_1b_h100", "llama70b_1b_4xh100"):
        made = prepare(from_point({**SMALL, "profile": profile, "any_fit": "true"})).simulation.scheduler()
        found[profile] = made.speculation.budget(16)
    assert found["vicuna7b_68m_a100"] > found["llama70b_1b_4xh100"] > found["llama8b_1b_h100"] == 4 * 16


@pytest.mark.usefixtures("few_rows")
def test_a_chunk_of_auto_and_seats_of_null_follow_profile_and_engine():
    def batching(**point):
        made = prepare(from_point({**SMALL, **{key.replace("__", "."): each for key, each in point.items()}}))
        return made.simulation.scheduler().batching

    found = batching()
    assert found.prefill_tokens.filled_tokens == 366, "the bend of 4 x H100"
    assert (found.prefill_tokens.max_num_batched_tokens, found.max_num_seqs) == (8192, 1024), "vLLM's on a large GPU"
    experts = batching(profile="gpt_oss_120b_eagle3_2xh100", acceptance="gpt_oss_20b_eagle3")
    assert experts.prefill_tokens.filled_tokens == 8192, "a pass that wakes all experts has room for more"
    own = batching(engine__max_num_batched_tokens="512", engine__max_num_seqs="32")
    assert (own.prefill_tokens.max_num_batched_tokens, own.max_num_seqs) == (512, 32)
    assert batching(scheduler__verify_tokens="96").max_num_seqs == 96, "a constant B has a root for each"
    stated = batching(scheduler__prefill_tokens="300", scheduler__max_num_seqs="48")
    assert (stated.prefill_tokens, stated.max_num_seqs) == (300, 48)


ARTIFACT = "adaserve_artifact_qwen32b"
CONSTANTS = {"verify_tokens": 256, "prefill_tokens": 1024, "max_num_seqs": 80}
SHAPE = {"depth_min": 3, "depth_max": 5, "width_max": 3, "draft_pass_tokens": 80}
NOT_SHIPPED = re.compile("no acceptance of this pair ships")
PROFILES = names_of("profile")


def scheduler(**point):
    return compose({key.replace("__", "."): value for key, value in point.items()})["scheduler"]


def acceptance(**point):
    return str(compose(point)["choices"]["acceptance"])


def test_the_qwen_profile_brings_its_acceptance():
    shared = {"trace": "poisson", "requests": "6", "scheduler": "adaserve", "profile": "qwen32b_05b_2xa100"}
    followed, stated = (from_point(shared | each) for each in ({}, {"acceptance": "qwen32b_05b"}))
    assert followed.config["acceptance"] == stated.config["acceptance"]
    said = "acceptance=qwen32b_05b, engine=vllm_0_15 (with profile=qwen32b_05b_2xa100), as suggested"
    assert any(said in each for each in prepare(followed).notes)
    assert not any("acceptance=" in each and "as suggested" in each for each in prepare(stated).notes)


@pytest.mark.parametrize("name", ["adaserve", "global_greedy", "equal_greedy", "laps_adaserve", "adaserve_oracle"])
def test_the_artifact_s_profile_brings_adaserve_s_constants(name):
    found = scheduler(scheduler=name, profile=ARTIFACT)
    assert {key: found[key] for key in CONSTANTS} == CONSTANTS
    assert {key: found["shape"][key] for key in SHAPE} == SHAPE
    made = scheduler_factory(found, name)()
    assert (made.batching.batch_slots if name == "laps_adaserve" else made.batching).max_num_seqs == 80
    assert {key: getattr(made.speculation.shape, key) for key in SHAPE} == SHAPE
    assert made.speculation.verify_tokens == made.speculation.shape.verify_tokens == 256


def test_the_first_version_takes_the_budget_of_its_own_table():
    """AdaServe v1, Table 1: 156 tokens on an A100, 582 on an H100; depth and width share it."""
    for profile, budget in (("llama70b_1b_4xh100", 582), ("llama70b_1b_4xa100", 156), (ARTIFACT, 156)):
        found = scheduler(scheduler="adaserve_v1", profile=profile)
        assert (found["verify_tokens"], found["max_num_seqs"], found["shape"]["depth_max"]) == (budget, 64, 8)
        shape = scheduler_factory(found, "adaserve_v1")().speculation.shape
        assert shape.verify_tokens == shape.pass_tokens(1) == budget
        assert [shape(n).width for n in (budget // 3, budget // 2, budget)] == [3, 2, 1]
    shape = scheduler(scheduler="adaserve_artifact", profile=ARTIFACT)["shape"]
    assert (shape["depth_max"], "depth_min" in shape) == (5, False), "a constant that it has not is left out"


def test_the_user_goes_first():
    assert acceptance(profile=ARTIFACT, acceptance="bernoulli") == "bernoulli"
    found = scheduler(profile=ARTIFACT, scheduler__verify_tokens="128", scheduler__shape__depth_max="4")
    assert (found["verify_tokens"], found["shape"]["depth_max"], found["shape"]["depth_min"]) == (128, 4, 3)
    shape = scheduler(profile=ARTIFACT, scheduler__shape="{depth_min: 1, depth_max: 2}")["shape"]
    assert (shape["depth_min"], shape["depth_max"]) == (1, 2)


def test_a_scheduler_goes_before_a_drafter_and_a_drafter_before_a_profile(tmp_path):
    assert acceptance(profile=ARTIFACT, drafter="eagle") == "eagle"
    assert acceptance(profile=ARTIFACT, scheduler="smartspec_tree") == "medusa"
    drafter = {"kind": "lookup", "pass_s": 1e-4, "suggests": {"acceptance": "llama70b_1b"}}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(drafter))
    assert acceptance(profile=ARTIFACT, drafter=str(tmp_path / "d.yaml")) == "llama70b_1b", "the default's name, too"


def test_the_code_trace_brings_servers_for_its_bursts():
    assert compose({})["replicas"] == 4
    run = simulate("vllm", "azure_code", requests=40)
    assert len(run.metrics["specsim"]["requests_by_replica"]) == 4
    assert any("replicas=4 (with trace=azure_code), as suggested there" in each for each in run.notes)
    assert compose({"trace": "azure_conv"})["replicas"] == 1
    fleet = "[llama70b_1b_4xh100, llama70b_1b_4xa100]"
    for key, value, servers in ("replicas", "2", 2), ("concurrency", "8", 1), ("replica_profiles", fleet, 2):
        found = compose({"trace": "azure_code", key: value})
        assert found["replicas"] == servers, "the user's servers and clients go first"
        assert "trace=azure_code" not in found["followed"]


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("profile", PROFILES)
def test_every_shipped_profile_agrees_with_the_acceptance_that_it_brings(profile):
    """A file says so where no acceptance of its pair ships, and brings one of another pair."""
    file = read_yaml(shipped("conf") / "profile" / f"{profile}.yaml")
    own = "acceptance" in (file.get("suggests") or {}) and not any(map(NOT_SHIPPED.match, file["assumptions"]))
    notes = prepare(from_point({**SMALL, "profile": profile})).drafting_notes
    assert own == (not any(note.startswith("MISMATCHED PAIR") for note in notes))
