"""Lowerings of matrix products and dense linear algebra."""
