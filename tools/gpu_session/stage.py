"""One stage of a session in a process of its own, which may break.

``python -m tools.gpu_session.stage DIR STAGE SECONDS`` exits with 0 if the stage is done, 3 if time ran out, 4 if a fit
is not fit for use, 6 if the GPU is of another model than the session's, 2 after any other error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiler.latency.profile_file import UNFIT
from specsim.errors import SpecsimError, first_line, say
from tools.gpu_session.state import FAILED, OTHER_GPU, OtherGpu, State, read_state


def main(argv: list[str]) -> int:
    """Run a stage for at most so many seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The session's process gets it too, and ends this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    threading.Thread(target=_end_with_the_session, daemon=True).start()
    folder, stage, seconds = argv
    deadline = time.monotonic() + float(seconds)
    state = read_state(Path(folder))
    try:
        if state is None:
            raise SpecsimError(f"{folder}: holds no session")
        state.join(_machine(state))
        code = _stages()[stage](state, deadline)
    except OtherGpu as error:
        return _failed(str(error), OTHER_GPU)
    except SpecsimError as error:
        return _failed(str(error), FAILED)
    except Exception as error:  # Kernels, drivers and models may raise anything; the log gets one line.
        return _failed(f"{type(error).__name__}: {first_line(error)}", FAILED)
    if code in (0, UNFIT):
        state.finish(stage)
    return code


def _failed(said: str, code: int) -> int:
    say(f"specsim: {said}", error=True)
    return code


def _stages() -> dict[str, Callable[[State, float], int]]:
    from tools.gpu_session.checks import check
    from tools.gpu_session.engine import engine
    from tools.gpu_session.sweeps import rest, sweep

    return {"check": check, "sweep": sweep, "engine": engine, "rest": rest}


def _machine(state: State) -> dict[str, Any]:
    from profiler.latency.hardware import machine_facts
    from profiler.models.loading import default_device
    from tools.gpu_session.pairs import first_arguments

    return machine_facts(default_device(first_arguments(state).device))


def _end_with_the_session() -> None:
    """End at once when standard input ends: the session's process, which holds its other end, was killed."""
    os.read(0, 1)
    os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
