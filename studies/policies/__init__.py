"""Policies of 2026 compared: each tuned on one part of a trace and judged on another (docs/policies.md)."""
