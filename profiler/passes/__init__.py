"""One forward pass of a packed batch: through fused kernels or transformers' own, and replayed as a graph."""
