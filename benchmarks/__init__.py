"""Measurements: each is a module that prints a table; none is a test."""
