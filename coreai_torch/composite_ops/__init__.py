"""Modules that conversion keeps whole: each is one named op for the compiler, and plain torch here.

Build them into a model and name them in an `ExternalizeSpec`; until then they run and export like
any other module.
"""

from .gated_delta_update import GatedDeltaUpdate
from .gather_mm import GatherMM
from .rms_norm import RMSNorm, RMSNormImpl
from .rope import RoPE
from .sdpa import SDPA

__all__ = ["SDPA", "GatedDeltaUpdate", "GatherMM", "RMSNorm", "RMSNormImpl", "RoPE"]
