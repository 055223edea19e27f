"""Lowerings of ops that create, reshape, join and pad tensors."""
