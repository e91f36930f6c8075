"""Builders of shipped files: profiles from public measurements, surrogates of real traces."""
