"""Comparison of numbers: the one judge of whether two results agree."""
