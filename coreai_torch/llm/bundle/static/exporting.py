"""Stage a decoder as the functions of a static bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coreai.authoring.types import AllocationType, HardwareConstraints

from ....asset.program import Program
from ....converter import TorchConverter
from ..states import LayerShape
from . import names
from .capturing import capture
from .requirements import check_captured, check_layers, check_rotary
from .step_functions import stage_static

_INTERLEAVE = 8  # channels that lie together in memory


def stage_decoder(
    converter: TorchConverter, model: Any, layers: Sequence[LayerShape], context: int
) -> None:
    """Stage all functions of a static bundle; raise for decoders that cannot be rewritten."""
    shape = check_layers(model, layers, context)
    check_rotary(model, context)
    captured = capture(model, len(layers))
    check_captured(model, captured, len(layers))
    caches = (len(layers), 1, shape.key_heads * shape.key_width)
    stage_static(converter, captured, caches, context)


def constrain_to(context: int) -> Callable[[Program], None]:
    """Return a function that sets the memory layout that the engine shares between functions.

    All numbers of slots are slices of one cache, so each has the strides of the largest one.
    """
    cache = HardwareConstraints(
        AllocationType.IOSurface, (1, 1, 1, 1, _INTERLEAVE * context, 1), (1, 1, _INTERLEAVE, 1, 1)
    )
    table = HardwareConstraints(AllocationType.IOSurface, (1, 1, 1, 1), (_INTERLEAVE, 1, 1))
    constraints = {names.KEYS: cache, names.VALUES: cache, names.TABLE: table}

    def constrain(program: Program) -> None:
        for name in names.function_names(context):
            program.set_hardware_constraints(name, constraints)

    return constrain
