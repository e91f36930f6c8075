"""The inner loops of a run as pure functions of arrays, each twice: in numpy, and as loops that numba compiles."""
