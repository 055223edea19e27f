"""Lowerings of the ops behind `torch.nn`."""
