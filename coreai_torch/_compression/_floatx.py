"""Tensors of floats narrower than a byte."""

from ..compression.subbyte import Float4Tensor, SubbyteTensor

__all__ = ["Float4Tensor", "SubbyteTensor"]
