"""The models that passes run through: loaded, or of a known shape with random weights."""
