"""The decomposition table, under the module name that other programs import."""

from .converter import get_decomp_table

__all__ = ["get_decomp_table"]
