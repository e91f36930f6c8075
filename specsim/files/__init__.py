"""The user's files: read within bounds, every value checked."""
