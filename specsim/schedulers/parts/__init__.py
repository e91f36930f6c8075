"""The parts that schedulers share: who runs, how far they speculate, and what checks their parameters."""
