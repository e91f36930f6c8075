"""What only the future knows: acceptance tapes and the simulated backend."""
