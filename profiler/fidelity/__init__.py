"""A whole run held against itself: the same scheduler on real passes and on simulated ones."""
