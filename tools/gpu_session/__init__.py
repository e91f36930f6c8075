"""A session on a lent GPU: checks, sweeps and engine times in one command that any cut leaves whole."""
