"""Builders of shipped files: profiles from public measurements, twins of real traces."""
