"""One forward pass: rows packed into a batch, a paged cache, attention over trees, graphs."""
