"""Searches: the greatest rate that attains a target, and each scheduler's best settings."""
