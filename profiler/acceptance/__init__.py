"""Recording how a drafter agrees with its target, and what the recordings say."""
