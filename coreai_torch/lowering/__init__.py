"""The engine that lowers FX graphs to the dialect."""

from .binding import Axes, Axis, ConstantOrValue, Number, Shape
from .cases import case
from .context import Ctx
from .promotion import Promote
from .registry import BUILTIN, Registry, decomposes, lowers, lowers_function

__all__ = [
    "BUILTIN",
    "Axes",
    "Axis",
    "ConstantOrValue",
    "Ctx",
    "Number",
    "Promote",
    "Registry",
    "Shape",
    "case",
    "decomposes",
    "lowers",
    "lowers_function",
]
