"""The record of a run, and pure functions that make numbers and tables of it."""
