"""`specsim profile latency`: time real passes, fit their times, write a profile."""
