"""What draws: figures of a run, of several, of a sweep."""
