"""The seeded faults of `python -m tests.mutants` are faults of the code as it is."""

import pytest

from tests.mutants import CHECKOUT, FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.becomes.strip()}")
def test_the_line_stands_once_in_its_file_and_its_tests_are_there(fault: Fault) -> None:
    assert (CHECKOUT / fault.file).read_text(encoding="utf-8").count(fault.line) == 1
    assert fault.line != fault.becomes
    assert all((CHECKOUT / each).is_file() for each in fault.pytest if each.startswith("tests/"))


def test_there_are_thirty() -> None:
    assert len(set(FAULTS)) == 30
