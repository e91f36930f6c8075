"""Published figures, run again: an experiment YAML, its runs, theirs against ours, a page of verdicts."""
