"""What a forward pass costs: the forms, and the profile files that hold them."""
