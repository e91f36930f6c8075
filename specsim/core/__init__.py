"""The seam between scheduler and backend: requests, passes, trees, protocols."""
