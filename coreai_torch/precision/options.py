"""Half precision for programs that were exported by the caller."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import CalibrationWarning, ConversionError
from ..fx.programs import user_inputs
from ..torch_compat import pytree
from .checking import DTYPES, check_keep, check_names, check_precision, listed_calibration
from .half import PrecisionReport, to_half
from .recast import is_full

UNCALIBRATED = (
    "half precision was measured on the example inputs alone: other inputs may overflow\n"
    "  try   pass calibration=[(x,), ...] with typical inputs\n"
    "  code  CAT404"
)


@dataclass(frozen=True)
class Precision:
    """Half precision: the dtype to compute in, and what stays in float32.

    Args:
        dtype: "float16" or "bfloat16".
        keep: "auto" finds what must stay in float32 by measuring; or patterns of module paths, ops
            and FX nodes, as ["encoder.norm*", "aten.exp"].
        calibration: inputs to measure with, each a tuple of args or a dict of kwargs; without it
            the example inputs are used, with a warning.
        half_ports: whether float32 inputs and outputs become half precision too.
    """

    dtype: str = "float16"
    keep: str | Sequence[str] = "auto"
    calibration: Iterable[Any] | None = None
    half_ports: bool = False

    def __post_init__(self) -> None:
        """Read an iterator once, because several programs may be measured with it."""
        if self.calibration is not None:
            object.__setattr__(self, "calibration", listed_calibration(self.calibration))

    @classmethod
    def of(cls, given: Precision | str | None) -> Precision | None:
        """Return options for a name or options; raise for an unknown name."""
        made = cls(given) if isinstance(given, str) else given
        if made is not None:
            if not isinstance(made, Precision):
                raise ConversionError(
                    f"precision is {made!r}\n  try   pass 'float16' or Precision('float16')"
                )
            check_precision(made.dtype)
            check_keep(made.keep)
        return made

    def apply(
        self, program: torch.export.ExportedProgram
    ) -> tuple[torch.export.ExportedProgram, PrecisionReport]:
        """Return the program in half precision, and a report."""
        samples = [_leaves(program, given) for given in self._inputs(program)]
        return to_half(program, samples, self.dtype, self.keep, half_ports=self.half_ports)

    def as_ports(self, leaves: Sequence[Any]) -> list[Any]:
        """Return float32 inputs in the dtype of the ports."""
        dtype = DTYPES[self.dtype]
        return [v.to(dtype) if self.half_ports and is_full(v) else v for v in leaves]

    def _inputs(self, program: torch.export.ExportedProgram) -> list[Any]:
        if self.calibration is not None:
            return list(self.calibration)
        if program.example_inputs is None:
            raise ConversionError(
                "the exported program has no example inputs\n"
                "  try   pass precision=Precision('float16', calibration=[(x,), ...])"
            )
        warnings.warn(UNCALIBRATED, CalibrationWarning, stacklevel=6)
        args, kwargs = program.example_inputs
        return [(*args, *kwargs.values())]


def _leaves(program: torch.export.ExportedProgram, given: Any) -> list[Any]:
    """Return inputs, a tuple of args or a dictionary by name, as a flat list."""
    names = user_inputs(program)
    if isinstance(given, Mapping) and set(given) == set(names):
        return [given[name] for name in names]
    if isinstance(given, Mapping):
        check_names(given, names)
    values = tuple(given.values()) if isinstance(given, Mapping) else given
    values = values if isinstance(values, tuple | list) else (values,)
    flat = pytree.tree_leaves(tuple(values), is_leaf=lambda leaf: leaf is None)
    if len(flat) != len(names):
        raise ConversionError(
            f"calibration has {len(flat)} inputs, but the program takes {names}\n"
            "  try   pass tuples of args as for the model"
        )
    return list(flat)
