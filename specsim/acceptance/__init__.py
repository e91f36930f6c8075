"""Kinds of acceptance, and the acceptance trace that each makes."""
