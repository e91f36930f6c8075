"""Figures of a run, of several runs, of a sweep."""
