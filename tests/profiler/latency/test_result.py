from __future__ import annotations

from profiler.latency.result import summary


def test_a_form_without_a_ridge_is_told_so():
    error = {"roofline": {"decode": {"median": 0.021, "p95": 0.2, "worst": 0.3}}}
    mapping = {
        "description": "Big + Small",
        "form": "roofline",
        "target": {"held_out_error": error},
        "draft": {"held_out_error": error},
        "checks": {
            "knee_tokens": {
                "target": {"fitted": 171.4, "compute_over_bandwidth": 290.2},
                "draft": {"fitted": None, "compute_over_bandwidth": 290.2},
            }
        },
        "assumptions": ["random weights", "skipped: target decode/1x1@64 (eager): out of memory"],
    }
    told = summary(mapping)
    assert told[2].split() == ["target", "decode", "2.1%", "20.0%", "30.0%"]
    assert told[-3:] == [
        "target: ridge at 171 batched tokens; compute over bandwidth 290",
        "draft: no ridge; compute over bandwidth 290",
        "skipped: target decode/1x1@64 (eager): out of memory",
    ]
