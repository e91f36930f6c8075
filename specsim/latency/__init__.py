"""How long a forward pass takes: the forms of its time, and the profiles that hold their coefficients."""
