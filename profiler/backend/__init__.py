"""The backend that answers passes with real forward passes of real models."""
