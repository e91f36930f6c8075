"""One server: its clock, its ledger, its caches, and the checks that hold a scheduler to them."""
