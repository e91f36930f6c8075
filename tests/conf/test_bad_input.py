"""Every mistake in a setting, also one that changes nothing: exit status 2, one line that names it, nothing started."""

import json
import re

import pytest

from specsim.config import synonyms
from specsim.config.configured import from_words
from specsim.config.groups import LABELS, chosen_by_default, shipped_names
from specsim.config.points import known_keys, points
from specsim.errors import SpecsimError, one_line
from specsim.files.yaml_file import peek_yaml, shipped
from specsim.runs.plan import check_idle, checked
from tests.made import refusal

HUGE = "9" * 24

BASE = {"scheduler": "continuous", "trace": "poisson", "requests": "5", "acceptance": "bernoulli"}

NEWEST = max((each for each in shipped_names("engine") if "vllm" in each), key=lambda each: int(each.split("_")[-1]))
MISSPELT = [
    *(("scheduler=adasrve", "scheduler=adasrve", "'adaserve'"), ("scheduler=EAGLE", "expected drafter=eagle")),
    *((f"scheduler={a}spec", f"expected scheduler={b}") for a, b in (("ada", "specserve"), ("turbo", "smartspec"))),
    *(("slo=strict", "valid: absolute, adaserve"), ("tpot_slo_ms=20", "expected slo=one slo.ttft_s=0.2 slo.t")),
    *(("slo.classes.coding.tpot_ms=20", "did you mean 'tpot_s', in seconds?"), ("x_config_qps=3", "expected rps=R")),
    *(("engine=vllm", f"did you mean '{NEWEST}'"), ("engine.max_batch_size=64", "expected scheduler.max_num_seqs=N")),
    ("mem_fraction_static=0.9", "0.9 of profile.memory_bytes, or as the file says (docs/your-profile.md)"),
    *((f"trace.{word}=5", f"expected {own}") for word, own in (("rate", "rps=R"), ("users", "concurrency=N"))),
    *((f"router.{word}=5", f"expected {own}") for word, own in (("duration", "requests=N"), ("seed", "seed=, a key"))),
    *((f"slo{word}=2", "expected slo_scale=X") for word in (".scale", "_scale_factor")),
    ("slo.sources=2", "slo=adaserve: sources: unknown key; valid: classes, "),
    *((f"{key}=3", f"{key}: unknown key; valid: acceptance, ") for key in ("shape", "shd")),
    *(("scheduler.shap=3", "no such key; valid: _target_, "), ("slo.clases=1", "slo=adaserve: clases", "'classes'")),
    ("scheduler.num_spec=3", "expected scheduler=vllm_spec scheduler.num_speculative_tokens=K"),
    ("trace=azure_conversation", "did you mean 'azure_conv'?"),
    *((f"{flag}=x", f"expected --{flag} ") for flag in ("keep", "until", "each", "against")),
    *((f"{word}=0.6", "expected acceptance=0.7, or a rate") for word in ("acceptance.rate", "accept_rate")),
    ("slo.itl_s=1", "expected slo=one slo.ttft_s=0.2 slo.tpot_s=0.05 (s; a request's mean), or"),
    ("slo.classes.chat.tbt_s=1", "classes.chat.tbt_s: unknown key; valid: acceptance, "),
    *((f"{key}=3", f"expected {own}") for key, own in (("request_rat", "rps=R"), ("max_num_batch_tokens", "engine."))),
    *((f"scheduler={name}", own) for name, own in (("trtllm", "mean 'trtllm_schedule'"), ("speculative", "; valid: "))),
    ("trace.max_tokens=3", "poisson has no such key; valid: kind"),
    *((f"{each}=1", f"{each}: unknown key; valid: acceptance, ") for each in ("speedup", "share", "new")),
    ("scheduler=", "scheduler=", "valid: adaptive_verification, adaserve"),
    *(("schduler=fcfs", "schduler", "'scheduler'"), ("rps.x=1", "rps.x")),
    *(("scheduler=./adaserve.yaml", "no such file", "scheduler=adaserve?"), ("scheduler=./x.py", "plugins= takes")),
    ("trace=azure_code trace.surogate=false", "trace.surogate", "'surrogate'"),
    ("trace=adaserve_fig8 slo.max_token=9", "slo=trace: max_token", "'max_tokens'"),
]

WORDS = [
    *(("rps", "'rps'", "key=value"), ("rps = 2", "'rps'", "in one word"), ("=3", "'=3'", "key=value")),
    *(("rps=", "rps=", "no value", "null"), ("rps=2,", "rps=2,", "beside a comma")),
    *(("warmup=[0,5", "warmup=[0,5", "has no partner"), ("rps=“2”", "rps=“2”", "quote other text")),
    *(("rps=linspace(1,2)", "linspace", "range()"), ("scheduler=interval(1,2)", "interval()", "optimising sweeper")),
    *(("rps=glob(*)", "rps=glob(*)", "names of a group"), ("rps=range(5,1)", "rps=range(5,1)", "0 values")),
    *(("rps=range(0,1e9,0.1)", "rps=range(0,1e9,0.1)", "100000"), ("seed=???", "seed")),
    *(("trace=glob(./*.csv)", "glob(./*.csv)", "with commas"), ("out=~no_such_user/x", "out=", "'no_such_user'")),
    ("trace=glob(azure*,mooncake*)", "excludes nothing", "glob([a*,b*])"),
    ("seed=${oc.env:SPECSIM_NO_SUCH_VARIABLE}", "SPECSIM_NO_SUCH_VARIABLE"),
    ("trace=https://example.org/a.csv", "https://example.org/a.csv", "by address"),
    ("trace=~no_such_user/a.csv", "'no_such_user'", "./~no_such_user/a.csv"),
    *((f"out={each}", f"out='{each}': an address; expected a path") for each in ("s3://bucket/x", "hdfs:/x")),
]

HYDRA = [
    *((f"{key}=x", key, "'trace'") for key in ("~trace", "trace@x")),
    *(("+scheduler.new=1", "scheduler.new", "valid: _target_"), ("hydra.run.dir=x", "hydra.run.dir", "out=DIR")),
    ("scheduler.draft_tokens=3", "scheduler.draft_tokens", "scheduler.num_speculative_tokens"),
    *((f"{key}=2", key, "expected --jobs N") for key in ("hydra/launcher", "jobs")),
    *(("hydra.searchpath=[x]", "hydra.searchpath", "./mine.yaml"), ("--info", "--info", "--cfg job")),
    *((each, each.rstrip("= x"), "./mine.yaml") for each in ("--config-name=x", "-cn x", "--config-path x", "-cd=x")),
    ("--shell-completion install=bash", "--shell-completion", "specsim completion bash"),
    *(("--cfg hydra", "--cfg hydra", "--cfg job"), ("--rps=2", "--rps=2", "expected rps=2")),
    *(("-m --jobs 0", "jobs=0", "between 1 and 1024"), ("-x", "-x")),
]

TWICE = [
    *(("seed=2 seed=3", "seed"), ("scheduler=fcfs +scheduler=continuous", "scheduler")),
    ("acceptance.alpha=0.5 acceptance.alpha=0.6", "acceptance.alpha"),
]

VALUES = [
    *((f"rps={value}", "rps") for value in ("-1", "abc", "nan", "true", "[1]", "1e-320")),
    *((f"selection_s={value}", "selection_s") for value in ("-1", "2e12", "null")),
    *((each, each.partition("=")[0]) for each in ("requests=1.5", "replicas=0", "out={a: 1}")),
    ("trace=azure_code requests=8820", "requests=8820", "8819"),
    *((f"seed={value}", "seed") for value in ("-1", "9007199254740994.0", HUGE)),
    *((f"warmup={value}", "warmup") for value in ("0", "x", "100%", "[5,1]", "[nan,5]")),
    *(("warmup=[1e9,2e9]", "warmup", "no request"), ("warmup=1e9", "warmup", "the last one arrives at")),
    ("metrics.window=[5,9]", "metrics.window", "warmup=[a,b]"),
    *((f"plugins={value}", "plugins") for value in ("5", "no_such_module_at_all", "[./nope.py]")),
]
SCHEDULERS = [
    *((f"scheduler.max_num_seqs={value}", "max_num_seqs") for value in ("0", "auto")),
    *(("scheduler.watermark=nan", "watermark"), ("scheduler=adaserve scheduler.shape=5", "shape")),
    ("scheduler=vllm_spec scheduler.num_speculative_tokens=-1", "num_speculative_tokens"),
    ("scheduler=adaserve scheduler.shape.depth_min=9", "depth_min"),
    ("scheduler=adaserve scheduler.order._partial_=false", "order"),
    ("scheduler._target_=specsim.server.ledger.Ledger", "'specsim.server.ledger.Ledger'"),
    ("scheduler._target_=specsim.schedulers.composed.Compsed", "'Compsed'", "'Composed'"),
    ("scheduler=adaserve scheduler.order._target_=os.system", "'os.system'"),
]
SMALL_GPUS = "profile=llama70b_1b_4xh100 profile.memory_bytes=200000000000"
WORLDS = [
    ("acceptance.alpha=1e-5", "alpha", "0, 1, or a number between 0.0001 and 0.9999"),
    ("acceptance=[0.5,0.6]", "cumulative: [0.5, 0.6] is not rates that fall from each draft position to the next"),
    ("acceptance=[0.76,abc]", "acceptance=[0.76,abc]: expected a list of rates by draft position, 0 to 1"),
    ("acceptance=[]", "acceptance=[]: expected a list of rates by draft position, 0 to 1"),
    ("acceptance=1.5", "conditional: 1.5 is not rates, each draft right with probability 0.001 to 0.999"),
    ("acceptance.confidence.temperature=0", "confidence.temperature: 0 is not a finite number above 0"),
    *(("acceptance=llama70b_1b acceptance.categories.default.spread=-1", "spread"), ("slo=trace", "poisson", "slo=")),
    *(("slo.classes.coding.share=0.5", "share"), ("slo.classes.coding.max_tokens=" + HUGE, "max_tokens")),
    *((f"{key}={value}", key.removeprefix("slo.")) for key, value in (("slo.ttft_s", "-1"), ("ttft_scale", "x"))),
    *(("trace.rps=1e-12", "trace.rps=1e-12", "8.59e+09 s", "microsecond"), ("concurrency=6", "between 1 and 5")),
    *(("trace=gamma trace.cv=1e200", "trace.cv"), ("trace.prompt_tokens.low=9000", "low: 9000", "high, 8192")),
    *((f"trace=azure_code trace.resample={value}", "trace.resample") for value in ("0", "1e9")),
    ("trace=bursts trace.resample=60", "trace.resample", "changes nothing"),
    *(("slo.classes={}", "slo.classes", "changes nothing"), ("concurrency=4 warmup=[0,5]", "warmup")),
    ("profile.target={}", "profile.target", "changes nothing"),
    ("trace=azure_code trace.window=[1e9,2e9]", "trace.window"),
    ("trace=adaserve_fig8 trace.point=9", "trace.point: 9", "4.8"),
    *(("profile.form=table", "'table'", "roofline"), ("profile.memory_bytes=1", "memory_bytes")),
    *(("timeout_s=0", "timeout_s: 0"), ("shed.waitng=3", "did you mean 'waiting'?")),
    ("shed.waiting=3 concurrency=4", "shed and concurrency=4"),
    ("concurrency=4 rps=2.0", "rps: 2", " and concurrency=4"),
    (f"scheduler=threshold drafter=medusa drafter.depth=60 {SMALL_GPUS}", "leave no memory for KV"),
]
IDLE = [
    ("profile.gpus=64", "profile.gpus=64", "the times of profile=llama70b_1b_4xh100 are of 4 GPUs"),
    ("profile.target.nonembedding_bytes=1", "nonembedding_bytes holds the times of"),
    ("profile.target.forms.linear.alpha_s=1e-9", "the form in use is roofline (profile.form)"),
    ("profile.draft.overhead_s=1e-3", "engine=vllm_0_15 states overhead_s"),
    ("concurrency=2 trace.rps=3", "trace.rps=3", "with concurrency=2 clients send as they are answered"),
    ("drafter=eagle profile.draft.forms.roofline.delta_s=1e-2", "drafter=eagle drafts, not the draft model"),
    ("scheduler=adaserve scheduler.description=mine", "description says what scheduler=adaserve is"),
    *(("slo.assumed=3", "assumed says what slo=adaserve is"), ("plugins=[json,numpy]", "names anything in json")),
    ("trace.rps=3 rps=2", "trace.rps=3", "rps=2 goes before it"),
    ("trace.prompt_tokens={distribution:fixed,mean:9} trace.prompt_tokens.cv=1", "distribution=fixed does not read it"),
    ("router=slack", "router=slack", "replicas=1 leaves a router no choice"),
    ("router=dedicated router.pools={coding:1} replicas=1", "replicas=1 leaves a router no choice"),
]
IDLE = [(words, ": changes nothing: ", *said) for words, *said in IDLE]
"""Each says why."""
H100, LINK = "llama8b_1b_h100", "split.prefill=1 split.link_gb_per_s=50"
FLEETS = [
    ("replica_profiles=3", "replica_profiles=3: expected a list of profiles, one for each replica"),
    (f"replica_profiles=[{H100},lama8b_1b_a100]", "lama8b_1b_a100: unknown; did you mean 'llama8b_1b_a100'"),
    (f"replica_profiles=[{H100},{H100}] replicas=3", "replicas=3: replica_profiles says 2, one profile for each"),
    (f"replica_profiles=[{H100}] profile=llama8b_1b_a100", f"replica_profiles says {H100}, its first profile"),
    (f"replica_profiles=[{H100},llama70b_1b_4xh100]", "its target is Llama-3.1-70B", "expected the same models"),
    (f"replicas=1 {LINK}", "split.prefill=1: leaves none to decode; expected fewer than replicas=1"),
    ("replicas=3 split.prefill=1", "split.prefill=1: by which link? expected split.link_gb_per_s too"),
    ("replicas=3 split.prefill=0 split.link_gb_per_s=1", "split.prefill: 0 is not a whole number"),
    ("replicas=3 split.link_gb_per_s=1", "split.link_gb_per_s=1: changes nothing: no replica only reads prompts"),
    (f"replicas=2 {LINK} router=slack", "router=slack: changes nothing: replicas=2, one in each pool, leaves"),
    (f"replicas=5 {LINK} router=dedicated", "router=dedicated: 4 replicas cannot be shared evenly among 3 classes"),
    (f"replicas=4 {LINK} router=dedicated router.pools={{coding:2,chat:1,summarization:1}}", "pools: 4 replicas in"),
    ("router=dedicated replicas=3 router.pools={codng:2,chat:1}", "unknown class 'codng'; did you mean 'coding'?"),
    ("router=dedicated replicas=3 router.pools={coding:2,chat:1}", "class 'summarization' has no pool"),
    ("router=dedicated replicas=3 router.within=lest_tokens", "within: 'lest_tokens': expected one of affinity, "),
]


def base_of(words):
    """Return the settings of a small run that the words do not give."""
    given = {word.lstrip("+").partition("=")[0] for word in words}
    return [f"{key}={value}" for key, value in {**BASE, "out": "here"}.items() if key not in given]


@pytest.fixture
def run_refused(tmp_path, monkeypatch, refused, nothing_runs):
    """Return a function that holds that a run of these words and a few others is refused before it starts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda words, *flags: refused("run", *flags, *base_of(words), *words)


FLAGS = [case for case in HYDRA if case[0].startswith("-")]
SETTINGS = [*(case for case in (*MISSPELT, *WORDS, *HYDRA) if not case[0].startswith("-")), *TWICE]
TYPED = [MISSPELT[0], WORDS[0], WORDS[-1], TWICE[0], *VALUES[::20], *SCHEDULERS[::10], *WORLDS[::20]]
"""One mistake or two for each place that refuses them: where words are split, composed and prepared."""


def split(case):
    return re.split(r" (?![^{]*})", case[0])


def assert_told(said, case):
    for part in case[1:]:
        assert part in said


@pytest.mark.parametrize("flags", [(), ("-m",)], ids=["one", "sweep"])
@pytest.mark.parametrize("case", [*FLAGS, *TYPED], ids=lambda case: case[0])
def test_a_mistake_is_told_before_anything_runs(run_refused, case, flags):
    assert_told(run_refused(split(case), *flags), case)


@pytest.fixture
def elsewhere(here):
    """Stand in an empty folder that stays empty."""
    yield
    assert not list(here.iterdir())


def read(words, *, sweep):
    """Return the points that words span, or why they span none."""
    try:
        return points(words, sweep=sweep)
    except SpecsimError as error:
        return str(error)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("sweep", [False, True], ids=["one", "sweep"])
@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: case[0])
def test_a_mistaken_word_is_named(case, sweep):
    """Here and below without the command line, whose part is to print what is raised."""
    with pytest.raises(SpecsimError) as caught:
        checked(from_words([*base_of(split(case)), *split(case)], sweep=sweep))
    assert_told(one_line(str(caught.value)), case)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("case", [*VALUES, *SCHEDULERS, *WORLDS, *IDLE, *FLEETS], ids=lambda case: case[0])
def test_a_mistaken_value_is_named(case):
    """In a sweep it is the same point, so it is refused there alike."""
    words = [*base_of(split(case)), *split(case)]
    with pytest.raises(SpecsimError) as caught:
        checked(from_words(words, sweep=False))
    assert_told(one_line(str(caught.value)), case)
    assert read(words, sweep=True) == read(words, sweep=False)


REAL = ("AzureLLMInferenceTrace_code.csv", "specsim trace fetch azure_code")
SWEPT = [
    *(("-m rps=2,-1", "rps"), ("-m scheduler=fcfs,contnuous", "'continuous'")),
    ("-m warmup=[0,1],[1e9,2e9]", "warmup"),
    *((f"-m {word}", "twice") for word in ("rps=2,2.0", "scheduler=fcfs,fcfs", "rps=choice(2,2)")),
    *((word, word, "-m") for word in ("rps=1,2", "scheduler=fcfs,continuous", "rps=range(1,4)")),
    ("seed=0,1 -m rps=-1", "rps: -1 "),
    *((f"{flag}trace=azure_code trace.surrogate=false", *REAL) for flag in ("", "-m ")),
]
"""One bad point stops a sweep before its first run; settings may stand on both sides of -m."""


@pytest.mark.parametrize("case", SWEPT, ids=lambda case: case[0])
def test_a_mistake_in_the_points_of_a_sweep_is_told_before_anything_runs(run_refused, case):
    assert_told(run_refused(case[0].split()), case)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        *(("", "expected one of run, sweep, list"), ("rn", "'run'"), ("run --multirn", "did you mean '--multirun'?")),
        *(("compose", "compose: unknown command; expected specsim profile compose"), ("-x", "-x")),
        *(("run --target-rate 9", "unrecognized argument --target-rate; valid: "), ("completion", "{bash,zsh,fish}")),
        *(("list nope", "valid: acceptance"), ("scheduler=fcfs rps=2", "specsim run scheduler=fcfs rps=2")),
        *(("--cfg job", "specsim run --cfg job"), ("list scheduler", "'schedulers'")),
        *(("trace fetch azure_cod", "'azure_code'"), ("trace fetch poisson", "not published")),
        *(("run --request-rate 4", "expected rps=R"), ("run --max-concurrency=8", "expected concurrency=N")),
        *(("run qps=4", "expected rps=R"), ("run trace=burstgpt", "expected trace=./FILE: BurstGPT_1.csv")),
        ("run trace=poisson --against vlm", "--against vlm: scheduler=vlm: unknown; did you mean 'vllm'?"),
        ("run trace=poisson --against adaserve", "--against adaserve: adaserve is the scheduler of the run itself"),
        ("run -m trace=poisson --against vllm", "--against vllm: compares with one run; expected it without -m"),
        ("run trace=poisson --each", "--each: this is one run; expected -m beside it, for a sweep"),
        ("run trace=poisson --keep summary --jobs 2", "--jobs, --keep: this is one run; expected -m beside it"),
        *(("sweep status nowhere", "sweep status: no folder 'nowhere'"), ("find jobs=3", "jobs: expected --jobs N")),
        *(("sweep status", "expected the folder of one sweep"), ("sweep status .", "'.' holds no sweep; expected the")),
        ("find trace=poisson --target 90", "--target 90: expected a share above 0 up to 1, or a percentage"),
        *((f"find --rates {each}", f"{each}: expected LOW..HIGH in requests/s, as 0.5..64") for each in ("3", "3..1")),
        *((f"tune seed={each}", "expected seeds in a list, whole numbers, each") for each in ("a", "0.5", "0,0")),
        *((f"find {each} 3", "find chooses it; expected --rates LOW") for each in ("rps=3", "qps=3", "--request-rate")),
        (f"tune trace=poisson --schedulers vllm_spec --export vllm replicas=2 {LINK}", "expected servers of one kind"),
        *((f"{verb} output_dir=x", f"{verb} chooses it; expected --out DIR") for verb in ("find", "tune")),
        ("find --until 3", "--until: unknown; `specsim run` has --until WIDTH beside -m"),
        *((f"{word}e", f"{word}e: unknown command; valid: calibrate") for word in ("serv", "benchmarks")),
        ("find trace=poisson requests=5 --of cat", "of=cat: no class of the requests; expected worst, all, coding"),
        *(("find --seed 3", "no dashes; expected seed=VALUE"), ("find concurrency=3", "a rate of open arrivals")),
        ("find trace=poisson slo=trace slo.classes=null --of cat", "slo=trace: trace 'poisson' carries no objectives"),
        ("tune trace=poisson scheduler=fcfs", "scheduler=fcfs: its file declares no values to try; expected tune: "),
        ("tune trace=poisson --schedulers vllm,vllm_specs", "scheduler=vllm_specs: unknown; did you mean 'vllm_spec'?"),
        ("tune trace=poisson scheduler=vllm_spec --export tgi", "export tgi: expected vllm, sglang, trtllm"),
        ("tune trace=poisson scheduler=vllm_spec rps=2,3", "rps=2,3: expected one value, or several of scheduler.KEY"),
    ],
)
def test_a_mistake_in_a_command_is_one_line(nothing_runs, refused, command, named):
    assert not synonyms.chosen_by("find", "scheduler.speculation.max_concurrency")
    assert named in refused(*command.split())


def accepted(*words, sweep=False):
    return checked(from_words(["trace=poisson", "requests=3", *words], sweep=sweep))


@pytest.mark.parametrize(
    "words",
    [
        "engine=profiled profile.draft.overhead_s=1e-3",
        "profile.form=linear profile.target.forms.linear.alpha_s=1e-9",
        "drafter.launch_s=1e-3 drafter.graphs=false",
        "trace.rps=3",
        "router=round_robin",
        "-m drafter.graphs=true,false drafter.launch_s=1e-3",
        "-m replicas=1,2 router=slack",
        "-m profile.form=roofline,linear profile.target.forms.linear.alpha_s=1e-9",
    ],
)
def test_what_matters_to_one_run_may_be_set_for_all(words):
    assert accepted(*words.removeprefix("-m ").split(), sweep=words.startswith("-m"))


OURS = "specsim.schedulers.fcfs"


def test_what_matters_to_no_run_of_a_sweep_or_to_a_file_of_your_own(here):
    assert "profile.gpus=64" in refusal(accepted, "scheduler=continuous,adaserve", "profile.gpus=64", sweep=True)
    text = (shipped("conf") / "profile" / "llama8b_1b_a100.yaml").read_text().replace("gpus: 1", "gpus: 2")
    (here / "mine.yaml").write_text(text)
    accepted("profile=./mine.yaml")
    assert "of 2 GPUs" in refusal(accepted, "profile=./mine.yaml", "profile.gpus=4")
    made = "def __init__(self, max_num_seqs, arms):\n        super().__init__(max_num_seqs)"
    for name, source in (("idle", OURS), ("beside", OURS), ("other", "mine_of_beside")):
        (here / f"mine_of_{name}.py").write_text(f"from {source} import Fcfs\n\n\nclass Mine(Fcfs):\n    {made}\n")
        (here / f"{name}.yaml").write_text(f"_target_: mine_of_{name}.Mine\nmax_num_seqs: 8\narms: [a]\n")
    named, three = "plugins=[./mine_of_idle.py]", [f"./mine_of_{name}.py" for name in ("beside", "other", "idle")]
    accepted(named, "scheduler=./idle.yaml")
    accepted(named, "scheduler=./idle.yaml,continuous", sweep=True)
    assert "names anything in ./mine_of_idle.py" in refusal(accepted, named, "scheduler=continuous")
    words = [f"plugins=[{','.join(three)}]", "scheduler=./idle.yaml,./other.yaml,fcfs"]
    found = [each.settings.plugins for each in accepted(*words, sweep=True)]
    assert found == [(three[2],), tuple(three[:2]), ()]
    assert f"in {three[0]}" in refusal(accepted, words[0], "scheduler=./idle.yaml,fcfs", sweep=True)


CONDITIONAL = {"launch_s", "graph_step", "graph_most"}
"""Keys that change something only beside another, which their refusal names."""
TYPED_VALUES = {"N": "64", "M": "2", "R": "2", "K": "3", "X": "2", "S": "3"}


def typed(expected):
    """Return the settings in what was expected, with values in the place of capital letters."""
    named = re.findall(
        r"[a-z][a-z_.]*=(?:[A-Z]\b|\d[\d.]*%?|vllm\w*|pinned_vllm|poisson|gamma|one|true|lookup|cache_aware|{\d[^}]*})",
        expected,
    )
    return [f"{key}={TYPED_VALUES.get(value, value)}" for key, value in (each.split("=") for each in named)]


@pytest.mark.parametrize("expected", [each for each in synonyms.WORDS if typed(each)])
def test_what_is_expected_is_accepted(expected, tmp_path):
    """Where no trace is named, a file with blocks of prompts, which caching needs."""
    words, file = typed(expected), tmp_path / "blocks.jsonl"
    lengths = {"input_length": 700, "output_length": 5}
    rows = [{"timestamp": 500 * row, "hash_ids": [0, row], **lengths} for row in range(99)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    trace = [] if any(each.startswith("trace=") for each in words) else [f"trace={file}", "trace.time_unit=ms"]
    checked(from_words([*words, *trace], sweep=False))


def plain_keys():
    """Return every key of a group's file that is not a label, whose value is a number or a truth value."""
    files = ((group, shipped("conf") / group / f"{name}.yaml") for group in LABELS for name in shipped_names(group))
    held = ((group, *item) for group, file in files for item in peek_yaml(file).items())
    found = {key for group, key, each in held if isinstance(each, int | float) and key not in LABELS[group]}
    other = {word for words in synonyms.WORDS.values() for word in words.split()}
    return sorted(found - set(known_keys()) - other - CONDITIONAL)


@pytest.mark.parametrize("key", plain_keys())
def test_a_hint_at_a_groups_key_is_not_refused_when_typed(key):
    said = refusal(from_words, [f"{key}=1"], sweep=False)
    group, name, choice = re.search(r"did you mean '(\w+)\.(\w+)'(?: with \w+=(\w+))?\?", said).groups()
    choice = choice or chosen_by_default()[group]
    value = peek_yaml(shipped("conf") / group / f"{choice}.yaml")[name]
    check_idle(from_words([f"{group}={choice}", f"{group}.{name}={str(value).lower()}"], sweep=False))


@pytest.mark.parametrize("word", ["description", "suggests", "name", "trace.nam"])
def test_a_hint_never_crosses_roles(word):
    assert "did you mean" not in refusal(from_words, [f"{word}=1"], sweep=False)


@pytest.mark.parametrize(
    ("set_to", "lengths"),
    [
        *((["=1024"], [1024]), (["={distribution: fixed, mean: 1024}"], [1024])),
        ([".distribution=uniform", ".low=10", ".high=11"], [10, 11]),
        (["={distribution: lognormal, low: 700, high: 701}"], [700, 701]),
        ([".distribution=fixed,uniform", ".mean=9", ".low=8", ".high=8"], [8, 9]),
    ],
)
def test_another_distribution_drops_the_keys_of_the_former(set_to, lengths):
    words = [f"trace.prompt_tokens{each}" for each in set_to]
    points = checked(from_words(["trace=poisson", "requests=20", "scheduler=fcfs", *words], sweep=True))
    assert points[0].config["trace"]["output_tokens"]["distribution"] == "lognormal"
    assert {int(each) for point in points for each in point.experiment.simulation.requests.prompt_tokens} == {*lengths}
