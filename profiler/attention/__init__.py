"""Attention over trees and a paged cache: rows packed into a batch, pages, kernels."""
