"""The commands behind the command line: run, complete, write to a terminal."""
