"""Every mistake in a setting: exit status 2, one line (two at most) that names it, nothing started, `-m` or not."""

import pytest

from specsim import simulation
from specsim.cli import main
from specsim.config.configured import from_words
from specsim.config.points import points
from specsim.errors import SpecsimError, one_line
from specsim.runs.plan import checked

HUGE = "9" * 24

BASE = {
    "scheduler": "continuous",
    "trace": "poisson",
    "requests": "5",
    "acceptance": "bernoulli",
}

MISSPELT = [
    ("scheduler=adasrve", "scheduler=adasrve", "'adaserve'"),
    ("+scheduler=adasrve", "scheduler=adasrve", "'adaserve'"),
    ("trace=azure_cod", "trace=azure_cod", "'azure_code'"),
    ("profile=llama8b_1b_h10", "profile=llama8b_1b_h10", "'llama8b_1b_h100'"),
    ("acceptance=bernouli", "acceptance=bernouli", "'bernoulli'"),
    ("scheduler=", "scheduler=", "valid: adaptive_verification, adaserve"),
    ("scheduler=null", "scheduler=null", "vllm"),
    ("schduler=fcfs", "schduler", "'scheduler'"),
    ("rpss=2", "rpss", "'rps'"),
    ("new=1", "new", "valid: acceptance"),
    ("+new=1", "new", "valid: acceptance"),
    ("rps.x=1", "rps.x"),
    ("shed.wating=4", "shed.wating", "'waiting'"),
    ("scheduler.max_request=3", "scheduler.max_request", "'max_num_seqs'"),
    ("+scheduler.max_request=3", "scheduler.max_request", "'max_num_seqs'"),
    ("slo.clases=1", "slo=adaserve: clases", "'classes'"),
    ("SCHEDULER=fcfs", "SCHEDULER", "'scheduler'"),
    ("scheduler=./adaserve.yaml", "no such file", "scheduler=adaserve?"),
    ("profile.target.overhed_s=1", "overhed_s", "'overhead_s'"),
    ("trace=azure_code trace.twn=false", "trace.twn", "'twin'"),
    ("trace=adaserve_fig8 slo.max_token=9", "slo=trace: max_token", "'max_tokens'"),
    ("scheduler=adaserve scheduler.shape.width_mx=2", "width_mx", "'width_max'"),
]

WORDS = [
    ("rps", "'rps'", "key=value"),
    ("rps = 2", "'rps'", "in one word"),
    ("rps= 2", "rps=", "no value"),
    ("rps:2", "'rps:2'", "key=value"),
    ("=3", "'=3'", "key=value"),
    ("rps==3", "rps"),
    ("rps=", "rps=", "no value", "null"),
    ("out=", "out=", "no value"),
    ("rps=2,", "rps=2,", "beside a comma"),
    ("scheduler=fcfs,", "scheduler=fcfs,", "beside a comma"),
    ("warmup=[0,5", "warmup=[0,5", "stands alone"),
    ("rps=“2”", "rps=“2”", "quote other text"),
    ("rps=None", "rps=None", "null"),
    ("rps=linspace(1,2)", "linspace", "range()"),
    ("scheduler=interval(1,2)", "interval()", "optimising sweeper"),
    ("rps=shuffle(1,2)", "shuffle()", "changes nothing"),
    ("rps=glob(*)", "rps=glob(*)", "names of a group"),
    ("rps=range(5,1)", "rps=range(5,1)", "0 values"),
    ("rps=range(5),7", "rps=range(5),7", "alone"),
    ("rps=2\n3", "rps=2 3"),
    ("rps=range(1,2,0)", "rps=range(1,2,0)", "step"),
    ("rps=range(0,1e9,0.1)", "rps=range(0,1e9,0.1)", "100000"),
    ("trace=glob(./*.csv)", "glob(./*.csv)", "with commas"),
    ("trace=glob(azure*,mooncake*)", "excludes nothing", "glob([a*,b*])"),
    ("seed=???", "seed"),
    ("seed=${nope}", "nope"),
    ("seed=${oc.env:SPECSIM_NO_SUCH_VARIABLE}", "SPECSIM_NO_SUCH_VARIABLE"),
    ("trace=https://example.org/a.csv", "https://example.org/a.csv", "by address"),
    ("trace=~no_such_user/a.csv", "'no_such_user'", "./~no_such_user/a.csv"),
    ("out=~no_such_user/x", "out=", "'no_such_user'"),
    ("plugins=[~no_such_user/x.py]", "plugins", "~no_such_user/x.py"),
]

NOTHING_CHANGES = [
    "slo.classes={}",
    "slo=trace slo.classes={}",
    "slo.classes.chat={}",
    "profile.target={}",
    "scheduler=adaserve scheduler.shape={}",
]

HYDRA = [
    ("~trace", "~trace", "trace=null"),
    ("~trace=poisson", "~trace", "another choice"),
    ("trace@x=y", "trace@x", "trace=NAME"),
    ("+new.key=1", "new.key", "valid: acceptance"),
    ("+scheduler.new=1", "scheduler.new", "valid: _target_"),
    ("hydra.run.dir=x", "hydra.run.dir", "out=DIR"),
    ("scheduler.draft_tokens=3", "scheduler.draft_tokens", "expected scheduler.num_speculative_tokens"),
    ("hydra/launcher=joblib", "hydra/launcher", "expected --jobs N"),
    ("jobs=2", "jobs", "expected --jobs N"),
    ("executor=ray", "executor", "expected --executor NAME"),
    ("hydra/sweeper=optuna", "hydra/sweeper", "range()"),
    ("hydra.searchpath=[x]", "hydra.searchpath", "./mine.yaml"),
    ("hydra.verbose=true", "hydra.verbose", "change nothing"),
    *(
        (f"{flag}{value}", flag, "./mine.yaml")
        for flag in ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd")
        for value in ("=x", " x")
    ),
    ("--info", "--info", "--cfg job"),
    ("--hydra-help", "--hydra-help", "run --help"),
    ("--run", "--run", "the default"),
    ("--experimental-rerun x", "--experimental-rerun", "config.yaml"),
    ("--shell-completion install=bash", "--shell-completion", "specsim completion bash"),
    ("--cfg hydra", "--cfg hydra", "--cfg job"),
    ("--cfg", "--cfg", "expected one argument"),
    ("--cfg job --package slow", "slow", "'slo'"),
    ("--cfg job -p slo.classes.codng", "slo.classes.codng", "'coding'"),
    ("--package slo", "--package", "--cfg job"),
    ("--resolve", "--resolve", "--cfg job"),
    ("--rps=2", "--rps=2", "expected rps=2"),
    ("--rps 2", "--rps", "expected rps=VALUE"),
    ("--jobs 0", "--jobs 0", "between 1 and 1024"),
    ("--jobs two", "--jobs two", "between 1 and 1024"),
    ("--jobs", "--jobs", "expected one argument"),
    ("-x", "-x"),
]

TWICE = [
    ("seed=2 seed=3", "seed"),
    ("seed=2 +seed=2", "seed"),
    ("scheduler=fcfs +scheduler=continuous", "scheduler"),
    ("acceptance.alpha=0.5 acceptance.alpha=0.6", "acceptance.alpha"),
]

VALUES = [
    *((f"rps={value}", "rps") for value in ("-1", "abc", "nan", "true", "[1]", "1e-320")),
    *((f"selection_s={value}", "selection_s") for value in ("-1", "2e12", "null")),
    *((f"slo_scale={value}", "slo_scale") for value in ("0", "inf")),
    *((f"requests={value}", "requests") for value in ("0", "1.5")),
    ("trace=azure_code requests=8820", "requests=8820", "8819"),
    *((f"seed={value}", "seed") for value in ("-1", "1e300", "9007199254740994.0", HUGE)),
    *((f"{key}={value}", key) for key in ("replicas", "block_tokens") for value in ("0", "2.5")),
    ("passes=yes", "passes"),
    ("selection_token_s=-1", "selection_token_s"),
    *((f"warmup={value}", "warmup") for value in ("0", "x", "100%", "-5%", "[5,1]", "[nan,5]", "[0,inf]")),
    ("warmup=[1e9,2e9]", "warmup", "no request"),
    ("warmup=1e9", "warmup", "the last one arrives at"),
    ("metrics.window=[5,9]", "metrics.window", "warmup=[a,b]"),
    ("requests=1 warmup=10%", "warmup", "leaves nothing out"),
    ("shed=5", "shed"),
    *((f"plugins={value}", "plugins") for value in ("5", "no_such_module_at_all", "[./nope.py]")),
    ("out={a: 1}", "out"),
]
SCHEDULERS = [
    *((f"scheduler.max_num_seqs={value}", "max_num_seqs") for value in ("0", "1.5", "abc", "auto")),
    *((f"scheduler.prefill_tokens={value}", "prefill_tokens") for value in ("-1", "x", "null")),
    *((f"scheduler.watermark={value}", "watermark") for value in ("2", "nan")),
    ("scheduler=vllm_spec scheduler.num_speculative_tokens=-1", "num_speculative_tokens"),
    ("scheduler=sarathi scheduler.max_num_batched_tokens=0", "max_num_batched_tokens"),
    *(
        (f"scheduler=adaserve scheduler.{key}={value}", key.split(".")[0] if "_" in key[-1] else key.split(".")[-1])
        for key, value in (
            ("shape", "5"),
            ("order", "null"),
            ("cap", "foo"),
            ("slo_share", "nan"),
            ("shape.depth_min", "9"),
            ("order._partial_", "false"),
            ("order._target_", "specsim.schedulers.parts.selection.select"),
        )
    ),
    ("scheduler._target_=specsim.server.ledger.Ledger", "'specsim.server.ledger.Ledger'"),
    ("scheduler._target_=specsim.schedulers.composed.Compsed", "'Compsed'", "'Composed'"),
    ("scheduler._target_=null", "_target_"),
    ("scheduler=adaserve scheduler.order._target_=os.system", "'os.system'"),
]
WORLDS = [
    ("acceptance.kind=curvs", "kind"),
    ("acceptance.alpha=1.1", "alpha"),
    ("acceptance.alpha=1e-5", "alpha", "0, 1, or a number between 0.0001 and 0.9999"),
    ("acceptance=llama70b_1b acceptance.categories.default.spread=-1", "spread"),
    ("slo.classes.coding.share=0.5", "share"),
    ("slo.classes.coding.max_tokens=" + HUGE, "max_tokens"),
    ("slo.classes.chat.tpot_s=nan", "tpot_s"),
    *((f"{key}={value}", key.removeprefix("slo.")) for key in ("slo.ttft_s", "ttft_scale") for value in ("-1", "x")),
    ("slo=trace", "poisson", "slo="),
    ("trace.rps=nan", "trace.rps"),
    ("trace.rps=1e-12", "trace.rps=1e-12", "8.59e+09 s", "microsecond"),
    ("trace=bursts rps=1e-12", "rps=1e-12", "8.59e+09 s", "microsecond"),
    *((f"trace=gamma trace.cv={value}", "trace.cv") for value in ("0", "1e200")),
    ("trace.prompt_tokens.low=9000", "low: 9000", "high, 8192"),
    *((f"trace=azure_code trace.resample={value}", "trace.resample") for value in ("0", "1e9")),
    ("trace=bursts trace.resample=60", "trace.resample", "changes nothing"),
    ("trace=azure_code trace.window=[1e9,2e9]", "trace.window"),
    ("trace=adaserve_fig8 trace.point=9", "trace.point: 9", "4.8"),
    ("trace=adaserve_fig8 trace.points=[]", "trace.points"),
    ("profile.form=table", "'table'", "roofline"),
    ("profile.memory_bytes=1", "memory_bytes"),
    ("profile.target=5", "target"),
]


def base_of(words):
    """Return the settings of a small run that the words do not give."""
    given = {word.lstrip("+").partition("=")[0] for word in words}
    return [f"{key}={value}" for key, value in {**BASE, "out": "here"}.items() if key not in given]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command and holds that it was refused before anything ran."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def nothing_runs(*_):
        raise AssertionError("a simulation started")

    monkeypatch.setattr(simulation, "run", nothing_runs)

    def check(words, *flags):
        try:
            code = main(["run", *flags, *base_of(words), *words])
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        lines = said.err.strip("\n").split("\n")
        assert (code, said.out) == (2, "")
        assert len(lines) <= 2
        assert lines[0].startswith("specsim: ")
        assert "Traceback" not in said.err
        assert [path.name for path in tmp_path.iterdir()] == []
        return said.err

    return check


FLAGS = [case for case in HYDRA if case[0].startswith("-")]
SETTINGS = [*(case for case in (*MISSPELT, *WORDS, *HYDRA) if not case[0].startswith("-")), *TWICE]
TYPED = [MISSPELT[0], WORDS[0], WORDS[-1], TWICE[0], *VALUES[::20], *SCHEDULERS[::10], *WORLDS[::20]]
"""One mistake or two for each place that refuses them: where words are split, composed and prepared."""


def split(case):
    return case[0].split(" ") if "{" not in case[0] else [case[0]]


@pytest.mark.parametrize("flags", [(), ("-m",)], ids=["one", "sweep"])
@pytest.mark.parametrize("case", [*FLAGS, *TYPED], ids=lambda case: case[0])
def test_a_mistake_is_told_before_anything_runs(refused, case, flags):
    said = refused(split(case), *flags)
    for part in case[1:]:
        assert part in said


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Stand in an empty folder that stays empty."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


def read(words, *, sweep):
    """Return the points that words span, or why they span none."""
    try:
        return points(words, sweep=sweep)
    except SpecsimError as error:
        return str(error)


def assert_told(error, case):
    said = one_line(str(error))
    for part in case[1:]:
        assert part in said


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("sweep", [False, True], ids=["one", "sweep"])
@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: case[0])
def test_a_mistaken_word_is_named(case, sweep):
    """Here and below without the command line, whose part is to print what is raised."""
    with pytest.raises(SpecsimError) as caught:
        checked(from_words([*base_of(split(case)), *split(case)], sweep=sweep))
    assert_told(caught.value, case)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("case", [*VALUES, *SCHEDULERS, *WORLDS], ids=lambda case: case[0])
def test_a_mistaken_value_is_named(case):
    """In a sweep it is the same point, so it is refused there alike."""
    words = [*base_of(split(case)), *split(case)]
    with pytest.raises(SpecsimError) as caught:
        checked(from_words(words, sweep=False))
    assert_told(caught.value, case)
    assert read(words, sweep=True) == read(words, sweep=False)


@pytest.mark.parametrize("words", NOTHING_CHANGES)
def test_what_changes_nothing_is_refused(refused, words):
    assert "changes nothing" in refused(words.split(" "))


@pytest.mark.parametrize("good_bad", ["rps=2,-1", "slo_scale=1,nan", "requests=5,0", "seed=0,-1", "passes=true,3"])
def test_one_bad_point_stops_a_sweep_before_its_first_run(refused, good_bad):
    assert good_bad.partition("=")[0] in refused([good_bad], "-m")


@pytest.mark.parametrize(
    ("swept", "named"),
    [
        ("scheduler=fcfs,contnuous", "'continuous'"),
        ("trace=poisson,azure_cod", "'azure_code'"),
        ("warmup=[0,1],[1e9,2e9]", "warmup"),
        ("seed=0," + HUGE, "seed"),
    ],
)
def test_one_bad_choice_stops_a_sweep_before_its_first_run(refused, swept, named):
    assert named in refused([swept], "-m")


def test_commas_without_m_are_refused_and_m_is_named(refused):
    for word in ("rps=1,2", "scheduler=fcfs,continuous", "rps=range(1,4)", "rps=choice(1,2)"):
        said = refused([word])
        assert word in said
        assert "-m" in said


@pytest.mark.parametrize("word", ["rps=2,2", "rps=2,2.0", "seed=1,1e0", "scheduler=fcfs,fcfs", "rps=choice(2,2)"])
def test_a_value_swept_twice_is_refused(refused, word):
    said = refused([word], "-m")
    assert word.partition("=")[0] in said
    assert "twice" in said


def test_settings_may_stand_on_both_sides_of_m(refused):
    """Argparse by itself calls what follows an option between settings an unknown argument."""
    said = refused(["seed=0,1", "-m", "rps=-1"])
    assert "rps" in said
    assert "unrecognized" not in said


def test_without_the_real_file_twin_false_is_refused(refused):
    for flags in ((), ("-m",)):
        said = refused(["trace=azure_code", "trace.twin=false"], *flags)
        assert "AzureLLMInferenceTrace_code.csv" in said
        assert "specsim trace fetch azure_code" in said


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("", "expected one of run, sweep, list"),
        ("rn", "'run'"),
        ("help", "unknown command"),
        ("-x", "-x"),
        ("list nope", "valid: acceptance"),
        ("list schedulers traces", "traces"),
        ("scheduler=fcfs rps=2", "specsim run scheduler=fcfs rps=2"),
        ("-m scheduler=fcfs,las", "specsim run -m scheduler=fcfs,las"),
        ("--cfg job", "specsim run --cfg job"),
        ("--config-name x", "./mine.yaml"),
        ("completion", "{bash,zsh,fish}"),
        ("completion tcsh", "expected bash, zsh, fish"),
        ("trace list", "fetch"),
        ("list scheduler", "'schedulers'"),
        ("trace", "VERB"),
        ("trace fetch", "name"),
        ("trace fetch azure_cod", "'azure_code'"),
        ("trace fetch poisson", "not published"),
        ("plot", "RUN"),
    ],
)
def test_unknown_commands_and_flags(capsys, command, named):
    try:
        code = main(command.split())
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("specsim: ")
    assert named in said.err
