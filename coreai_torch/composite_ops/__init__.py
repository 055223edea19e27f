"""Modules that convert to one composite op each; in eager mode they are ordinary torch modules.

Use them in a model and name them in an `ExternalizeSpec` to keep them as composites. Otherwise
they run, export and convert like any other module.
"""

from .gated_delta_update import GatedDeltaUpdate
from .gather_mm import GatherMM
from .rms_norm import RMSNorm, RMSNormImpl
from .rope import RoPE
from .sdpa import SDPA

__all__ = ["SDPA", "GatedDeltaUpdate", "GatherMM", "RMSNorm", "RMSNormImpl", "RoPE"]
