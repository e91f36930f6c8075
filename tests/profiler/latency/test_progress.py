"""How a sweep tells how far it is where there is no terminal."""

from __future__ import annotations

import pytest

from profiler.latency.sweep import Progress


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(1.0, [1, 11, 21, 31, 35]), (4.0, [1, 5, 9, 13, 17, 21, 25, 29, 33, 35]), (60.0, [*range(1, 36)])],
)
def test_a_line_comes_every_ten_points_or_fifteen_seconds(capsys, seconds, told):
    now = [100.0]
    progress = Progress(35, "big + small", clock=lambda: now[0])
    for number in range(1, 36):
        now[0] += seconds
        progress.done(f"decode/{number}", 0.0123)
    progress.close()
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[3]) for line in lines] == told
    used, left = told[0] * seconds, 34 * seconds
    assert lines[0] == f"big + small: 1 of 35 points, {used:.0f} s, about {left:.0f} s left; decode/1 12.300 ms"
