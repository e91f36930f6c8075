"""What is recorded, and the pure functions that turn it into numbers, tables and figures."""
