"""What a run records, and pure functions that make numbers and tables of it."""
