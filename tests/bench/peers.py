"""Other simulators on the same trace: whole processes, beside those of `tests.bench.processes`.

``python -m tests.bench.peers FILE`` writes the trace that they replay, in Mooncake's form.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.bench.loops import CONV, prepared
from tests.bench.processes import WHOLE_CONV, timed_process
from tests.bench.rows import Row

DYNAMO = Path(".venv/peers/bin/python")
"""An environment with ai-dynamo (Apache-2.0): its simulator, ``dynamo.replay``, is compiled Rust."""
BLOCK = 512
REPLAY = """\
import sys
from dynamo.replay import run_trace_replay
report = run_trace_replay(sys.argv[1], trace_block_size=int(sys.argv[2]))
done = report.summary["completed_requests"]
if done != int(sys.argv[3]):
    sys.exit(f"{done} requests of {sys.argv[3]} ended")
"""


def measured(rows: list[Row]) -> Iterator[Row]:
    """Yield the row of each peer that is installed, with the time of the same trace in `rows` over its own."""
    if not _has_dynamo():
        print(f"dynamo.replay: not measured; expected ai-dynamo in {DYNAMO} (make .venv/peers)", file=sys.stderr)
        return
    ours = next(row for row in rows if row.name == WHOLE_CONV)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.jsonl"
        subprocess.run([sys.executable, "-m", "tests.bench.peers", str(file)], check=True)
        with file.open() as lines:
            requests = sum(1 for _ in lines)
        words = (str(DYNAMO.absolute()), "-c", REPLAY, str(file), str(BLOCK), str(requests))
        asked = (str(DYNAMO), "-c", "from importlib.metadata import version; print(version('ai-dynamo'))")
        release = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        row = timed_process(f"dynamo.replay {release}, all {requests:,} of azure_conv", words)
    yield replace(row, target=f"specsim: {ours.seconds / row.seconds:.1f} times as long")


def _has_dynamo() -> bool:
    asked = (str(DYNAMO), "-c", "import dynamo.replay")
    return DYNAMO.is_file() and subprocess.run(asked, capture_output=True).returncode == 0


def write_trace(file: Path) -> None:
    """Write the requests of a run, a JSON object a line; nobody shares a block of the prefix cache."""
    simulation, first = prepared(("scheduler=continuous", *CONV[:2])), 0
    requests = simulation.requests
    columns = (requests.arrival_s, requests.prompt_tokens, simulation.ground_truth.output_tokens)
    with file.open("w") as lines:
        for arrival_s, prompt, output in zip(*(each.tolist() for each in columns), strict=True):
            blocks = -(-prompt // BLOCK)
            told = {"timestamp": arrival_s * 1e3, "input_length": prompt, "output_length": output}
            lines.write(json.dumps(told | {"hash_ids": list(range(first, first + blocks))}) + "\n")
            first += blocks


if __name__ == "__main__":
    write_trace(Path(sys.argv[1]))
