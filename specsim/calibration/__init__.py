"""Engine files from measured points: closed loops without events, priced, and fitted to what a server was measured at."""
