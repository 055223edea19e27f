"""Check the options of half precision before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ..errors import ArgumentTypeError, ConversionError, NamingError
from ..fx.programs import user_inputs

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_INPUTS = "  try   pass calibration=[(x,), ...], one tuple of args for each input"


def check_precision(precision: Any) -> None:
    """Raise if a precision is unknown."""
    if not isinstance(precision, str) or precision not in DTYPES:
        known = " or ".join(map(repr, DTYPES))
        raise ConversionError(
            f"precision is {precision!r}, which is not a half precision\n"
            f"  try   pass {known}; leave it out for float32"
        )


def check_keep(keep: Any) -> None:
    """Raise if `keep` is neither "auto" nor patterns."""
    listed = isinstance(keep, Sequence | set | frozenset)
    if not listed or not all(isinstance(pattern, str) for pattern in keep):
        raise ArgumentTypeError(
            f"keep is {keep!r}, which is not a list of patterns\n"
            '  try   pass keep="auto", or keep=["encoder.norm*", "aten.exp"]'
        )


def check_unused(keep: Any, calibration: Any, half_ports: bool) -> None:
    """Raise if an option of half precision is given without a precision."""
    given = {"keep": keep != "auto", "calibration": calibration is not None}
    for name, used in {**given, "half_ports": half_ports}.items():
        if used:
            raise ConversionError(
                f"{name} has no effect without precision\n"
                f'  try   pass precision="float16" too, or leave out {name}'
            )


def listed_calibration(calibration: Any) -> list[Any]:
    """Return the calibration inputs, read once."""
    wrong = isinstance(calibration, torch.Tensor | str | Mapping)
    if wrong or not isinstance(calibration, Iterable):
        kind = type(calibration).__name__
        raise ArgumentTypeError(f"calibration is a {kind}, not a list of inputs\n{_INPUTS}")
    found = list(calibration)
    if not found:
        raise ConversionError("calibration is empty\n  try   pass at least one tuple of args")
    return found


def check_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise if a name is none of the inputs; those inside a list `x` are called `x_0`, `x_1`."""
    for name in given:
        if not any(f"{known}_".startswith(f"{name}_") for known in names):
            raise NamingError(
                f"calibration: no input is called {name!r}\n"
                f"  try   pass {' and '.join(map(repr, names))}"
            )


def checked_samples(
    program: torch.export.ExportedProgram, samples: Iterable[Sequence[Any]]
) -> list[list[Any]]:
    """Return the inputs in the dtypes of the program; raise if one does not fit it."""
    names = user_inputs(program)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return [
        [
            _checked(nodes[name], leaf, place) if name in nodes else leaf
            for name, leaf in zip(names, leaves, strict=True)
        ]
        for place, leaves in enumerate(samples)
    ]


def _checked(node: fx.Node, leaf: Any, place: int) -> Any:
    wanted = node.meta.get("val")
    if not isinstance(leaf, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return leaf
    sizes = list(wanted.shape)
    fixed = [(want, got) for want, got in zip(sizes, leaf.shape) if isinstance(want, int)]  # noqa: B905
    same_kind = _kind(leaf.dtype) == _kind(wanted.dtype)
    if leaf.dim() != len(sizes) or any(want != got for want, got in fixed) or not same_kind:
        raise ConversionError(
            f"calibration: {node.name!r} of input {place} is {_described(leaf)}, "
            f"but the model takes {_described(wanted)}\n  try   pass inputs as for the model"
        )
    return leaf.to(wanted.dtype)


def _kind(dtype: torch.dtype) -> tuple[bool, bool, bool]:
    return dtype.is_floating_point, dtype.is_complex, dtype == torch.bool


def _described(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(map(str, value.shape))}]"
