"""Lowerings of compressed weights and quantized ops."""
