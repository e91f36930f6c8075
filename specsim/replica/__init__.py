"""One server: requests and passes, the two seams, the ledger, the clock, and what holds a scheduler to them."""
