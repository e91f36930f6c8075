"""`specsim profile latency`: real passes timed, fitted and written as a profile."""
