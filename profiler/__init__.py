"""The profiler of specsim: the only package that may import torch."""
