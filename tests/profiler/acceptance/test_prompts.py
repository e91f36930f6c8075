"""Prompt files: every published layout, each mistake in one line."""

import gzip
import json
import re
from pathlib import Path

import pytest

from profiler.acceptance.prompts import read_prompts
from tests.made import refusal


def lines(path: Path, *records: object) -> Path:
    text = "\n".join(json.dumps(each) for each in records) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("record", "category", "part"),
    [
        ({"task_id": "H/0", "prompt": "def f(x):", "entry_point": "f", "test": ""}, "code", "def f(x):"),
        ({"task_id": 1, "text": "Add two numbers.", "code": "x"}, "code", "Add two numbers."),
        ({"question": "How many?", "answer": "3"}, "math", "How many?"),
        ({"question_id": 1, "category": "rag", "turns": ["one", "two"]}, "rag", "one"),
        ({"question_id": 1, "category": "summarization", "turns": ["long"]}, "summarisation", "long"),
        ({"question_id": 1, "category": "humanities", "turns": ["why"]}, "chat", "why"),
        ({"category": "mine", "prompt": "say it"}, "mine", "say it"),
    ],
)
def test_known_layouts_are_read(record, category, part, tmp_path):
    (found,) = read_prompts([lines(tmp_path / "a.jsonl.gz", record)])
    assert (found.category, found.sequence) == (category, 0)
    assert part in found.text
    assert "two" not in found.text or part != "one"


def test_files_take_turns_a_text_comes_once_and_categories_are_chosen(tmp_path):
    def file(name: str, category: str, *texts: str) -> Path:
        return lines(tmp_path / name, *({"category": category, "prompt": text} for text in texts))

    files = [file("a.jsonl", "c", "1", "2", "3"), file("b.jsonl", "c", "4", "1"), file("d.jsonl", "d", "5")]
    found = read_prompts(files)
    assert [each.text for each in found] == ["1", "4", "2", "3", "5"]
    assert [each.sequence for each in found] == [0, 1, 2, 3, 0]
    assert [each.text for each in read_prompts(files, ["d"])] == ["5"]
    files[0].write_text('{"category": "a", "prompt": "x\u2028y"}\n', "utf-8")
    assert read_prompts(files[:1])[0].text == "x\u2028y", "a line separator inside a text is part of it"
    assert "category 'dd' is in none of the prompt files; valid: a, c, d" in refusal(read_prompts, files, ["dd"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "a.jsonl: empty file"),
        (b'{"category": "a", "prompt": "x"}\n{', "a.jsonl: line 2: is not JSON"),
        (b'{"prompt": "x"}\n', "a.jsonl: line 1: expected"),
        (b'{"category": "a", "prompt": ""}\n', "a.jsonl: line 1: category and prompt"),
        (b"\xff\xfe", "a.jsonl: cannot be read"),
        (b'{"category": "a\\nb", "prompt": "x"}\n', "a.jsonl: line 1: category: .* printable"),
    ],
)
def test_a_bad_file_is_one_line(content, said, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(content)
    assert re.search(said, refusal(read_prompts, [tmp_path / "a.jsonl"]))
