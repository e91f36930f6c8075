"""Times of an engine, with a stand-in for vLLM in a process of its own."""

import json
import sys
import time

import pytest

from profiler.latency.command import TIME_IS_UP
from tests.tools.gpu_session.test_supervisor import has_ended
from tools.gpu_session import engine as timing
from tools.gpu_session.engine import engine
from tools.gpu_session.state import State

# Its clock is its own: a prompt's token takes 1 ms, a step 10 ms and 0.1 ms a request; with a draft model three times.
VLLM = """
import time
from types import SimpleNamespace
now = 0.0
time.perf_counter = lambda: now
SamplingParams = lambda **settings: SimpleNamespace(**settings)
class LLM:
    def __init__(self, model, load_format, skip_tokenizer_init, dtype, speculative_config, **_):
        assert load_format == "dummy" and skip_tokenizer_init and dtype == "bfloat16"
        import json, pathlib
        for each in (model, *([speculative_config["model"]] if speculative_config else [])):
            assert json.loads((pathlib.Path(each) / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
        self.slower = 3 if speculative_config else 1
        FAIL
        print("INFO the engine's own words")
    def generate(self, prompts, settings, use_tqdm):
        global now
        assert settings.ignore_eos and not settings.detokenize
        tokens = sum(len(each["prompt_token_ids"]) for each in prompts)
        step = self.slower * (1e-2 + 1e-4 * len(prompts))
        now += 1e-3 * tokens + step * (settings.max_tokens - 1)
"""


@pytest.fixture
def state(tmp_path):
    words = ["--random-weights", "tiny-llama", "tiny-llama-skip1", "--device", "cpu"]
    made = State(tmp_path / "state", {"one": words})
    made.write()
    return made


def install(tmp_path, monkeypatch, fail="pass"):
    (tmp_path / "vllm.py").write_text(VLLM.replace("FAIL", fail))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(each for each in sys.path if each))


def test_an_engine_that_is_not_installed_is_one_line_and_done(state, capsys):
    assert engine(state, time.monotonic() + 60) == 0
    assert capsys.readouterr().out == "engine vllm: absent; vllm is not installed: no engine is timed\n"
    assert [row.quantity for row in state.rows()] == ["absent"]


def test_a_step_is_what_further_tokens_take(state, tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch)
    assert engine(state, time.monotonic() + 60) == 0
    rows = {(row.case, row.quantity): row for row in state.rows()}
    for batch in (1, 8, 256):
        assert rows[f"batch {batch} x 1024", "decode"].value == pytest.approx(10 + 0.1 * batch)
        assert rows[f"batch {batch} x 1024", "draft-model step"].value == pytest.approx(3 * (10 + 0.1 * batch))
    assert rows["prompt of 2048", "prefill"].value == pytest.approx(2048)
    assert "the engine's own words" in capsys.readouterr().err
    assert state.ended() == {"engine alone", "engine drafting"}
    config = json.loads((state.folder / "engine" / "draft" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["tie_word_embeddings"]) == (1, True)


def test_an_engine_that_fails_is_a_row_and_the_other_is_timed(state, tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, 'assert speculative_config, "no kernel image"')
    assert engine(state, time.monotonic() + 60) == 0
    rows = state.rows()
    (failed,) = (row for row in rows if row.quantity == "failed")
    assert (failed.check, failed.note) == ("engine alone", "its process ended with 1; session.log has its words")
    assert "no kernel image" in capsys.readouterr().err
    assert {row.check for row in rows if row.quantity == "draft-model step"} == {"engine drafting"}


def test_an_engine_that_hangs_is_ended_with_its_own_processes_and_none_is_begun_after_it(state, tmp_path, monkeypatch):
    child = "import subprocess; p = subprocess.Popen(['sleep', '60']); open(PID, 'w').write(str(p.pid)); time.sleep(60)"
    pid_file, really = tmp_path / "pid", timing._end
    install(tmp_path, monkeypatch, child.replace("PID", repr(str(pid_file))))

    def end(process):
        while process.poll() is None and not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.02)
        really(process)

    monkeypatch.setattr(timing, "_end", end)
    assert engine(state, time.monotonic() + 0.5) == TIME_IS_UP
    (failed,) = (row for row in state.rows() if row.quantity == "failed")
    assert failed.note == "its process ended with its time; session.log has its words"
    assert state.ended() == {"engine alone"}
    assert has_ended(int(pid_file.read_text()))
