"""Observers: docs/observers.md run, and what every observer is promised."""

import runpy
import shlex
import sys
from functools import partial

import numpy as np
import pytest

from specsim import find, iterations, simulate, sweep
from specsim.cli import main
from specsim.core.passes import DraftPass
from specsim.errors import ObserverFault
from tests.files import block, page
from tests.made import refusal

PAGE = page("observers")
SMALL = {"trace": "poisson", "requests": 20, "rps": 8}
LEAVING = type("Leaving", (), {"on_pass": lambda self, event: sys.exit(0)})


@pytest.fixture
def in_time(here):
    """Write the observer of the page."""
    (here / "in_time.py").write_text(block(PAGE, "python", "class InTime"))
    return {"plugins": ["./in_time.py"]}


@pytest.mark.usefixtures("in_time")
def test_the_page_runs(here, capsys):
    for line in block(PAGE, "sh").replace("requests=100", "requests=20").splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
    (here / "python.py").write_text(block(PAGE, "python", "simulate(").replace("requests=100", "requests=20"))
    runpy.run_path("python.py", run_name="__main__")
    assert "noted.in_time" in capsys.readouterr().out
    assert (here / "in_time.png").stat().st_size > 0


class Counting:
    """Counts what each request emitted, when its last token came, and the passes of each kind."""

    def begin(self, requests):
        self.emitted, self.last_s, self.drafts = np.zeros(requests), np.full(requests, np.nan), 0

    def on_pass(self, event):
        assert event.start_s <= event.view.now_s
        if isinstance(event.work, DraftPass):
            self.drafts += 1
            return
        ids = event.work.requests
        self.emitted[ids] += event.answer.tokens
        self.last_s[ids[event.answer.tokens > 0]] = event.view.now_s

    def noted(self, requests):
        return {"counted": self.emitted}


@pytest.mark.parametrize("scheduler", ["continuous", "adaserve"])
def test_an_observed_run_is_the_same_run_and_every_token_is_seen(scheduler):
    counting = Counting()
    plain = simulate(scheduler, **SMALL, replicas=2)
    observed = simulate(scheduler, **SMALL, replicas=2, observers=[counting])
    assert observed.requests[plain.requests.columns].equals(plain.requests)
    assert counting.emitted.tolist() == plain.requests["output_tokens"].tolist()
    assert counting.last_s.tolist() == plain.requests["finish_s"].tolist()
    assert (counting.drafts > 0) == (scheduler != "continuous")
    assert observed.requests["noted.counted"].tolist() == counting.emitted.tolist()
    assert observed.metrics["specsim"]["noted"] == {"counted": pytest.approx(counting.emitted.mean())}


class Failing:
    def on_pass(self, event):
        raise ValueError("no such thing")


class Same:
    def __init__(self):
        self.on_pass = id

    def noted(self, requests):
        return {"counted": np.zeros(requests)}


@pytest.mark.parametrize(
    ("observers", "line"),
    [
        ([Failing()], r"observer Failing at [\d.]+ s: ValueError: no such thing \(.*test_observers.py:\d+\)"),
        ([LEAVING], r"observer Leaving at [\d.]+ s: SystemExit: 0 \(.*test_observers.py:\d+\)"),
        ([Counting(), Same()], "observer Same: noted counted, which is noted already; expected another name"),
        ([object()], r"observers: an object has no on_pass\(event\) method"),
        ([lambda: Counting(3)], r"observers: <function .*: TypeError: Counting\(\) takes no arguments"),
    ],
)
def test_an_observer_that_fails_is_named_in_one_line(observers, line):
    with pytest.raises(ObserverFault, match=line) as caught:
        simulate("vllm", **SMALL, observers=observers)
    assert "\n" not in str(caught.value)


def test_what_is_no_observer_is_refused_before_anything_runs(in_time):
    nix = refusal(simulate, "vllm", **SMALL, **in_time, observers=["in_time.Nix", "in_time.InTime"])
    assert "observers: in_time.Nix: _target_: in_time has no 'Nix'" in nix
    outside = refusal(simulate, "vllm", **SMALL, observers=["os.system"])
    assert "observers: os.system: _target_: 'os.system' is not allowed" in outside
    shared = "observers: a Counting: several runs would share it; expected its class, Counting"
    for each, said in ((Counting(), shared), (lambda: Counting(3), "() takes no arguments"), (dict, "an on_pass")):
        assert said in refusal(sweep, {"seed": [0, 1]}, **SMALL, observers=[each])


def test_classes_observe_a_sweep_and_a_search_and_stand_when_it_is_made_again(tmp_path):
    made = partial(sweep, {"rps": [4, 8]}, trace="poisson", requests=20, progress=False)
    wanted = simulate("adaserve", **SMALL, observers=[partial(Counting)])
    assert made(observers=[partial(Counting)])[1].requests.equals(wanted.requests)
    seen = []
    made(observers=[type("Same", (), {"on_pass": lambda self, event, each=each: seen.append(each)}) for each in "ab"])
    assert seen.count("a") == seen.count("b") > 0
    first = made(observers=[Counting], jobs=2, out=tmp_path)
    assert "test_observers.Counting); config.yaml names it" in " ".join(first[0].provenance["notes"])
    before = [each.stat().st_mtime_ns for each in sorted(tmp_path.rglob("metrics.json"))]
    assert [run.metrics for run in made(observers=[Counting], out=tmp_path)] == [run.metrics for run in first]
    assert [each.stat().st_mtime_ns for each in sorted(tmp_path.rglob("metrics.json"))] == before
    assert made(observers=[Same])[0].made_of.key != first[0].made_of.key
    assert "was given as an object" in refusal(iterations, first[0], [1])
    asked = {"trace": "poisson", "requests": 20, "seed": 0, "rates": (1, 2), "of": "noted.counted"}
    assert find({"scheduler": ["vllm"]}, **asked, observers=[Same]).table["misses_rps"][0] == 1


def test_a_search_aims_at_the_mean_of_a_noted_column(in_time):
    asked = {"trace": "poisson", "requests": 60, "seed": 0, "rates": (1, 32), "within": 0.5}
    named = {**in_time, "observers": ["in_time.InTime"]}
    found = find({"scheduler": ["vllm"]}, **asked, **named, of="noted.in_time", target=0.9)
    keeps = found.table["keeps_rps"][0]
    at = simulate("vllm", "poisson", requests=60, rps=keeps, **named)
    assert at.requests["noted.in_time"].mean() >= 0.9
    said = refusal(find, {"scheduler": ["vllm"]}, **asked, **named, of="noted.nix")
    assert "of=noted.nix: no scheduler and no observer notes it; valid: noted.in_time" in said
