"""Inputs and outputs as an app wants them: images, numbers for bools, labels, other outputs."""

from .images import ImageInput
from .request import PortRequest

__all__ = ["ImageInput", "PortRequest"]
