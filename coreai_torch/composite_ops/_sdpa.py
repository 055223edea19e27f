"""Attention under the module name that other programs import; see `compat.names`."""

from .attention_module import scaled_dot_product_attention
from .sdpa import SDPA

__all__ = ["SDPA", "scaled_dot_product_attention"]
