"""What a user hands in: files read within bounds, mappings whose every value is checked."""
