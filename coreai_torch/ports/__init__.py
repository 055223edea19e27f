"""Inputs and outputs as an app wants them: images, numbers for bools, labels, other outputs."""

from .images import ImageInput
from .request import Ports, recorded_assume, recorded_images, recorded_randomness

__all__ = ["ImageInput", "Ports", "recorded_assume", "recorded_images", "recorded_randomness"]
