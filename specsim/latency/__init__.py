"""Pass times: the forms of a pass's cost, profile files, and drafters."""
