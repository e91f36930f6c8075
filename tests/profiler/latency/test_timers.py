import contextlib
import itertools
import math
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")

from profiler.latency.hardware import Clocks, ceilings, clocks_of, hardware  # noqa: E402  # noqa: E402
from profiler.latency.samples import Timing  # noqa: E402
from profiler.latency.timers import CudaTimer, Effort, HostTimer  # noqa: E402

pytestmark = pytest.mark.torch


class Watch:
    """A clock that a pass moves on."""

    now = 0.0

    def __call__(self):
        return self.now

    def passes(self, seconds):
        """Return a pass that takes each of `seconds` in turn."""
        turns = itertools.cycle(seconds)

        def run():
            self.now += next(turns)

        return run


def test_median_and_mean_are_of_the_runs_without_warm_up_and_rotating():
    watch, turns = Watch(), []

    def rotate(turn):
        turns.append(turn)
        watch.now += 1000

    timing = HostTimer(watch).launched(watch.passes([99, 98, 1, 2, 3, 4, 50]), rotate, Effort(5, 1e9))
    assert (timing, turns) == (Timing(3.0, 12.0, 1.0, 2.0, 5), [0, 1, 0, 1, 2, 3, 4])


def test_slow_passes_are_run_less_often_but_five_times():
    watch = Watch()
    timer = HostTimer(watch)
    assert timer.launched(watch.passes([10]), lambda _: None, Effort(100, 1.0)).runs == 5
    assert timer.launched(watch.passes([0.1]), lambda _: None, Effort(100, 1.0)).runs in (10, 11)
    assert timer.launched(watch.passes([0.001]), lambda _: None, Effort(20, 1.0)).runs == 20


class FakeCuda:
    """torch.cuda with a device that works behind the host: kernels queue up, events are stamped in the queue."""

    def __init__(self):
        self.host, self.device, self.capturing = Watch(), 0.0, False
        self.log, self.streams = [], []

    def kernel(self, seconds, launch):
        """Return a pass that occupies the device, and the host while it is launched."""

        def run():
            self.host.now += launch
            if not self.capturing:
                self.device = max(self.device, self.host.now) + seconds
            self.log.append("run")

        return run

    def Event(self, enable_timing):  # noqa: N802
        assert enable_timing
        event = SimpleNamespace()
        event.record = lambda: setattr(event, "at", max(self.device, self.host.now))
        event.elapsed_time = lambda other: (other.at - event.at) * 1000
        return event

    def synchronize(self):
        self.host.now = max(self.host.now, self.device)
        self.log.append("wait")

    def _sleep(self, cycles):
        self.device = max(self.device, self.host.now) + cycles / 1e6

    def empty_cache(self):
        self.log.append("emptied")

    def current_stream(self):
        return SimpleNamespace(wait_stream=lambda _: None)

    def Stream(self):  # noqa: N802
        self.streams.append(self.current_stream())
        return self.streams[-1]

    def stream(self, stream):
        self.log.append(stream)
        return contextlib.nullcontext()

    def CUDAGraph(self):  # noqa: N802
        def replay():
            self.host.now += 0.5
            self.device = max(self.device, self.host.now) + 2.0
            self.log.append("replay")

        return SimpleNamespace(replay=replay, reset=lambda: self.log.append("reset"))

    @contextlib.contextmanager
    def graph(self, _, stream):
        self.log.append(stream)
        self.capturing = True
        yield
        self.capturing = False


def test_a_launched_pass_takes_as_long_as_its_launch_where_that_is_longer():
    for seconds, launch in ((2.0, 0.5), (0.1, 3.0)):
        cuda = FakeCuda()
        timing = CudaTimer(cuda, cuda.host).launched(cuda.kernel(seconds, launch), lambda _: None, Effort(5, 1e9))
        assert timing.median_s == pytest.approx(launch + seconds)


@pytest.mark.parametrize("waits", [False, True])
def test_replays_stand_in_line_so_that_only_the_device_counts(waits):
    """Also behind inputs whose rotation waits for the device."""
    cuda = FakeCuda()
    timer, rotate = CudaTimer(cuda, cuda.host), lambda _: waits and cuda.synchronize()
    timing = timer.captured(cuda.kernel(2.0, 0.5), rotate, Effort(10, 1e9))
    assert (timing.median_s, timing.runs) == (pytest.approx(2.0), 10)
    assert (cuda.log[-2:], cuda.log.count("run")) == (["reset", "emptied"], 4)


def test_every_capture_warms_up_and_records_on_one_stream():
    """Each further stream would cost the device a workspace of its own, and one met first while recording a graph's."""
    cuda = FakeCuda()
    for _ in range(3):
        CudaTimer(cuda, cuda.host).captured(cuda.kernel(2.0, 0.5), lambda _: None, Effort(5, 1e9))
    [stream] = cuda.streams
    assert [each for each in cuda.log if not isinstance(each, str)] == [stream] * 6


def test_the_spin_outlasts_the_launch_twice_and_can_be_lengthened(monkeypatch):
    """A graph of 1,400 nodes takes longer to launch than the shortest spin."""
    cuda, spins = FakeCuda(), []
    monkeypatch.setattr("profiler.latency.timers.CYCLES_PER_S", 4e6)
    cuda._sleep = spins.append
    CudaTimer(cuda, cuda.host, spin=10).captured(cuda.kernel(2.0, 0.5), lambda _: None, Effort(5, 1e9))
    assert spins == [40e6] * 5


def test_ceilings_and_facts_of_this_machine():
    found = ceilings(HostTimer(), device=torch.device("cpu"), dtype=torch.float32)
    assert 1e9 < found["flops_per_s"] < 1e14
    assert 1e8 < found["bytes_per_s"] < 1e13
    about = hardware(torch.device("cpu"))
    assert about.name.endswith((" threads", ", 1 thread"))
    assert about.memory_bytes > 2**28


def answering(monkeypatch, answers):
    def run(command, **_):
        assert command[-1] == "--id=GPU-1-2-3"
        return SimpleNamespace(stdout=answers[command[1].removeprefix("--query-gpu=")])

    monkeypatch.setattr("subprocess.run", run)
    about = SimpleNamespace(name="Card", total_memory=80 * 2**30, L2_cache_size=50 * 2**20, uuid="1-2-3")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: about)


def test_clocks_are_read_while_the_device_works_and_at_no_other_time():
    load = [False]
    clocks = Clocks(lambda: (1755.0, 2619.0) if load[0] else (345.0, 405.0), every_s=0.001)
    for _ in range(3):
        time.sleep(0.005)
        load[0] = True
        with clocks.watch() as seen:
            wait_for(lambda seen=seen: len(seen.readings) >= 3)
        load[0] = False
        assert seen.median() == (1755.0, 2619.0)


def wait_for(happened):
    for _ in range(1000):
        if happened():
            return
        time.sleep(0.002)
    pytest.fail("nothing was read")


def test_nvml_is_asked_for_the_gpu_by_its_uuid(monkeypatch):
    answering(monkeypatch, {})
    asked = []
    nvml = SimpleNamespace(nvmlInit=lambda: None, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVMLError=RuntimeError)
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: asked.append(uuid) or "handle"
    nvml.nvmlDeviceGetClockInfo = lambda handle, kind: {1: 1755, 2: 2619}[kind]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with clocks_of(torch.device("cuda:1")).watch() as seen:
        wait_for(lambda: seen.readings)
    assert (asked, seen.median()) == (["GPU-1-2-3"], (1755.0, 2619.0))


def test_nvidia_smi_reads_where_nvml_is_not_and_clocks_that_cannot_be_read_are_nan(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("profiler.latency.hardware.SMI_EVERY_S", 0.001)
    answering(monkeypatch, {"clocks.sm,clocks.mem": "1980, 3201\n"})
    with clocks_of(torch.device("cuda:1")).watch() as seen:
        wait_for(lambda: seen.readings)
    assert seen.median() == (1980.0, 3201.0)
    monkeypatch.setattr("subprocess.run", Mock(side_effect=FileNotFoundError))
    for device in (torch.device("cuda"), torch.device("cpu")):
        with clocks_of(device).watch() as seen:
            time.sleep(0.01)
        assert all(math.isnan(each) for each in seen.median())
