"""Tensors of integers narrower than a byte."""

from ..compression.packing import pack_intx, pack_uintx
from ..compression.subbyte import IntxTensor, SubbyteTensor, UintxTensor

__all__ = ["IntxTensor", "SubbyteTensor", "UintxTensor", "pack_intx", "pack_uintx"]
