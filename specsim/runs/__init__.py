"""From plain values to a run: prepared, planned, executed, resumed, with its provenance."""
