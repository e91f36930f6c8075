"""What the command line does beside parsing: run, complete, write to a terminal."""
