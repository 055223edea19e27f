"""Benchmarks: each module prints a table; none is a test."""
