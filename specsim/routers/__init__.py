"""Policies that say which replica serves a request, one a file."""
