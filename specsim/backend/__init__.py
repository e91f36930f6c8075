"""The simulated backend: drafts and verifications without a model."""
