"""The rounds of a profile: a first one at once, the others by shares between runs; nothing is timed twice."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from profiler.backend.served import LookupMatch  # noqa: E402
from profiler.fidelity import measuring, models  # noqa: E402
from profiler.fidelity.measuring import ProfileRounds, samples_file  # noqa: E402
from profiler.fidelity.study import StudyPair, study_named  # noqa: E402
from profiler.latency.samples import read_samples  # noqa: E402
from specsim.latency.profile import load_profile  # noqa: E402
from specsim.pass_shape import PassShape  # noqa: E402

pytestmark = pytest.mark.torch
TWO_LAYERS = StudyPair("two_layers", "drawn", random_weights=("tiny-llama", "tiny-llama-skip1"))


@pytest.fixture
def timed(monkeypatch):
    """Every turn that is timed takes a second more than the last one."""
    found = []

    def runs(ready, role, point, grid, turn):
        found.append((turn, role, point.key))
        return [float(len(found))]

    monkeypatch.setattr(measuring, "runs", runs)
    return found


@pytest.fixture(scope="module")
def ready():
    return models.ModelCache(study_named("tiny")).ready(TWO_LAYERS, {16})


def rounds_of(ready, place):
    return ProfileRounds(ready, study_named("tiny").grid, place / "two_layers", lambda line: None)


def test_the_first_round_comes_at_once_and_the_others_by_shares(ready, tmp_path, timed):
    study = rounds_of(ready, tmp_path)
    first = study.first()
    points = len(timed)
    assert ({turn for turn, _, _ in timed}, len({each[1:] for each in timed})) == ({0}, points)
    for _ in range(2):
        study.go_on(0.25)
        assert len(timed) == points + round(points / 2)
    whole = study.whole()
    assert len(timed) == len(set(timed)) == 3 * points
    assert first != whole
    kept, last = (read_samples(samples_file(file))[1] for file in (first, whole))
    assert [{each.runs for each in some} for some in (kept, last)] == [{1}, {2}]
    seconds = {each: number + 1.0 for number, each in enumerate(timed)}
    for each in last:
        assert each.mean_s == sum(seconds[turn, each.role, each.key] for turn in (1, 2)) / 2


def test_profiles_are_fitted_to_means(ready, tmp_path, monkeypatch):
    """Of three runs of each point one took ten times as long: a mean is four times as long, a median as long.

    The first round, in which none did, is no part of what passes take.
    """
    slow = [1.0, 10.0, 1.0]
    monkeypatch.setattr(measuring, "runs", lambda ready, role, point, grid, turn: slow if turn else [1.0])
    study = rounds_of(ready, tmp_path)
    first, whole = (load_profile(each) for each in (study.first(), study.whole()))
    models = first.target, first.draft, whole.target, whole.draft
    assert [each.seconds(PassShape.decode(64.0, 2)) for each in models] == pytest.approx([1, 1, 4, 4])


def test_behind_a_lookup_later_rounds_are_of_the_target_alone(ready, tmp_path, timed):
    models = SimpleNamespace(target=ready.models.target, draft=LookupMatch(1, 3))
    lookup = SimpleNamespace(pair=ready.pair, models=models, kernel=ready.kernel, passes=ready.passes)
    study = rounds_of(lookup, tmp_path)
    study.first()
    study.whole()
    assert {(turn > 0, role) for turn, role, _ in timed} == {(False, "target"), (False, "draft"), (True, "target")}
