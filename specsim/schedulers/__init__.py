"""The policies, one file each, and the parts they are made of."""
