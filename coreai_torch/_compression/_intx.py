"""Tensors of integers narrower than a byte."""

from ..compression.packing import pack_intx, pack_uintx
from ..compression.subbyte import IntxTensor, UintxTensor

__all__ = ["IntxTensor", "UintxTensor", "pack_intx", "pack_uintx"]
