"""What is recorded and stored, and the pure functions that turn it into numbers and tables."""
