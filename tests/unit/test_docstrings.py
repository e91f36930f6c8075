"""Docstrings name their subject: no sentence begins with what, who, nobody or one."""

import ast
import re
from inspect import cleandoc
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRONOUN = re.compile(
    r"(?:\A|(?<=[.:;]\s)|(?<=\n\n))(?:What|Who|Whoever|Whatever|Nobody|Somebody|Everybody|Those (?:that|who)"
    r"|One (?:that|who|which|whose|is|has|does|may|can|must|of|with|without|goes|gets|takes))\b"
)


def docstrings(file):
    """Yield each docstring of a module, of what it defines, and behind its constants."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, re.sub(r"(?<!\n)\n[ ]*(?!\n)", " ", cleandoc(node.value.value))


@pytest.mark.parametrize("folder", ["specsim", "profiler", "studies", "tools"])
def test_no_sentence_of_a_docstring_has_a_pronoun_for_a_subject(folder):
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text[match.start() : match.start() + 60]!r}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(file)
        for match in PRONOUN.finditer(text)
    ]
    assert not found, "\n".join(found)
