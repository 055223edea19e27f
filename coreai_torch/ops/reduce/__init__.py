"""Lowerings of reductions, scans, sorting and counting."""
