"""Rotary embedding under the module name that other programs import; see `compat.names`."""

from .rope import RoPE, rope

__all__ = ["RoPE", "rope"]
