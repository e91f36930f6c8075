"""The process of a session: it starts each stage in another, holds its time, and brings the archive home."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tools
from profiler.latency.command import TIME_IS_UP
from profiler.latency.profile_file import UNFIT
from specsim.errors import say
from tools.gpu_session.state import LOG, OTHER_GPU, State, pack, read_state

POLL_S, ARCHIVE_EVERY_S = 1.0, 15.0
GRACE_S = 20.0
"""A stage ends itself at its limit, after the point or check at hand; so much later it is ended."""
TO_DIE_S = 3.0
MOST_STARTS = 6
ENDINGS = {0: "done", TIME_IS_UP: "time is up", UNFIT: "done, a fit is not fit for use", OTHER_GPU: "another GPU"}
"""Exit codes of a stage after which it is not started again."""


def meaning(code: int) -> str:
    """Return what an exit code of a stage means."""
    return ENDINGS.get(code, f"failed ({code})")


class Ended(SystemExit):
    """The session was told to end by a signal."""


@dataclass(slots=True)
class Supervisor:
    """Runs the stages of a session, each for so many minutes, until `deadline` (of ``time.monotonic``)."""

    state: State
    archive: Path
    minutes: Mapping[str, float]
    deadline: float
    process: Sequence[str] = (sys.executable, "-m", "tools.gpu_session.stage")
    packed_at: float = 0.0

    def run(self, stages: list[str]) -> dict[str, int]:
        """Return the exit code of each stage that was begun; the archive is whole whatever ends this."""
        codes: dict[str, int] = {}
        try:
            with _signals():
                for stage in stages:
                    if stage in self.state.done:
                        self._say(f"{stage}: done before")
                        codes[stage] = 0
                        continue
                    if time.monotonic() >= self.deadline:
                        self._say(f"{stage}: not begun, time is up")
                        codes[stage] = TIME_IS_UP
                        continue
                    codes[stage] = self._stage(stage)
                    if codes[stage] == OTHER_GPU:
                        break
        finally:
            self._pack()
        return codes

    def _stage(self, stage: str) -> int:
        """Run a stage, and start it again after its process broke as long as it gets on."""
        until = min(time.monotonic() + 60 * self.minutes[stage], self.deadline)
        code = TIME_IS_UP
        for _ in range(MOST_STARTS):
            before = self._measured()
            self._pack()
            self._say(f"{stage}: {max(until - time.monotonic(), 0):.0f} s")
            code = self._process(stage, until)
            self.state = read_state(self.state.folder) or self.state
            if stage in self.state.done and code not in (0, UNFIT):
                code = 0  # A process may still break while it ends.
            if code in ENDINGS or self._measured() == before or time.monotonic() > until:
                break
            self._say(f"{stage}: its process ended with {code}; it goes on in another")
        self._say(f"{stage}: {meaning(code)}")
        self._pack()
        return code

    def _process(self, stage: str, until: float) -> int:
        seconds = max(until - time.monotonic(), 0.0)
        words = [*self.process, str(self.state.folder), stage, str(seconds)]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            text=True,
            errors="replace",
        )
        assert process.stdin is not None, "it ends when this process no longer holds its standard input"
        assert process.stdout is not None
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
                if time.monotonic() > until + GRACE_S:
                    self._say(f"{stage}: past its limit by {GRACE_S:.0f} s, ended")
                    return TIME_IS_UP
                if time.monotonic() - self.packed_at > ARCHIVE_EVERY_S:
                    self._pack()
        except Ended:
            self._pack()  # First: whoever ends the session may not wait for its stage.
            raise
        finally:
            _end(process)
            reader.join(TO_DIE_S)
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    stream.close()
        return process.returncode

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._say(line.rstrip("\n"))

    def _say(self, line: str) -> None:
        with (self.state.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
        with suppress(OSError):  # Whoever read the output may be gone; the log is not.
            say(line, flush=True)

    def _measured(self) -> list[tuple[str, int, int]]:
        """Return the names, sizes and times of what holds measurements."""
        files = [each for each in self.state.folder.iterdir() if each.suffix in (".parquet", ".jsonl")]
        return sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files)

    def _pack(self) -> None:
        pack(self.state.folder, self.archive)
        self.packed_at = time.monotonic()


def _environment() -> dict[str, str]:
    """Return this process's environment, in which the stage finds this package wherever it starts."""
    import os

    paths = [str(Path(tools.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}


def _end(process: subprocess.Popen[str]) -> None:
    """End a stage: it writes what it has, and if it does not within seconds, it is killed."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(TO_DIE_S)
    process.kill()
    process.wait()


@contextmanager
def _signals() -> Iterator[None]:
    """Turn the signals that end a session into `Ended`, once: later signals interrupt nothing."""

    def end(number: int, _: Any) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Ended(128 + number)

    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
