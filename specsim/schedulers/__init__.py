"""The schedulers, one file each, and the parts that they share."""
