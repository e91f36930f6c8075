"""What a run records and stores, and pure functions that make numbers and tables of it."""
