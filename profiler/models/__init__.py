"""The models to be profiled: loaded, or of a known shape with random weights."""
