"""From typed words to plain values: points of a sweep, suggestions, the composed configuration."""
