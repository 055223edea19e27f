"""The specification of modules whose boundary is kept."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...errors import ExternalizeError


@dataclass
class ExternalizeSpec:
    """Keep every instance of `target_class` as a separate graph.

    ```python
    from coreai_torch import ExternalizeSpec
    from coreai_torch.composite_ops import RMSNormImpl

    ExternalizeSpec(RMSNormImpl, composite_op_name="rms_norm", composite_attrs=["axes", "eps"])
    ```

    Args:
        target_class: a subclass of `nn.Module`; instances of its subclasses count too.
        composite_op_name: declares the graphs as this composite op; without it they are plain
            boundaries.
        composite_attrs: attributes of the instances, recorded with each instance's own values;
            `version` is 1 unless it is among them.
    """

    target_class: type
    composite_op_name: str | None = None
    composite_attrs: list[str] | None = None

    def __post_init__(self) -> None:
        """Raise if a field is invalid."""
        if not (isinstance(self.target_class, type)):
            raise ExternalizeError(
                f"target_class is {self.target_class!r}\n  try   a subclass of torch.nn.Module"
            )
        if not issubclass(self.target_class, torch.nn.Module):
            raise ExternalizeError(
                f"{self.target_class.__name__} is not an nn.Module\n"
                "  try   the class of the submodules whose boundary is to be kept"
            )
        if self.composite_op_name is not None and not (
            isinstance(self.composite_op_name, str) and self.composite_op_name
        ):
            raise ExternalizeError(
                f"composite_op_name is {self.composite_op_name!r}\n  try   a name, as 'rms_norm'"
            )
        if isinstance(self.composite_attrs, str):
            raise ExternalizeError(
                f"composite_attrs is the string {self.composite_attrs!r}\n"
                f"  try   the list [{self.composite_attrs!r}]"
            )
        if self.composite_attrs is not None and self.composite_op_name is None:
            raise ExternalizeError(
                f"composite_attrs={self.composite_attrs} without a composite_op_name\n"
                "  try   ExternalizeSpec(target_class, composite_op_name=..., composite_attrs=...)"
            )


def as_specs(given: Sequence[Any] | None) -> list[ExternalizeSpec]:
    """Return specs; a class becomes a spec without a composite."""
    if given is None:
        return []
    if isinstance(given, type | ExternalizeSpec):
        given = [given]
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ExternalizeError(
            f"externalize_modules is {given!r}\n  try   a list of ExternalizeSpecs or classes"
        )
    return [g if isinstance(g, ExternalizeSpec) else ExternalizeSpec(g) for g in given]


@dataclass(frozen=True)
class Externalized:
    """One module whose boundary is kept, and the declaration of its graph."""

    path: str
    module: torch.nn.Module
    composite: str | None
    attrs: tuple[tuple[str, Any], ...]

    def owned(self) -> dict[str, torch.Tensor]:
        """Return the parameters and buffers of the module, in order of registration."""
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}


def matches(root: torch.nn.Module, specs: Sequence[ExternalizeSpec]) -> Iterator[Externalized]:
    """Yield every module that a spec matches; warn about specs without a match."""
    found: set[int] = set()
    for path, module in root.named_modules():
        for number, spec in enumerate(specs):
            if isinstance(module, spec.target_class):
                found.add(number)
                yield Externalized(path, module, spec.composite_op_name, _attrs(path, module, spec))
                break
    for number, spec in enumerate(specs):
        if number not in found and not _shadowed(root, spec):
            warnings.warn(
                f"externalize_modules: the model holds no {spec.target_class.__name__}",
                UserWarning,
                stacklevel=4,
            )


def _shadowed(root: torch.nn.Module, spec: ExternalizeSpec) -> bool:
    """Whether an earlier spec matched all instances of the class."""
    return any(isinstance(module, spec.target_class) for module in root.modules())


def _attrs(
    path: str, module: torch.nn.Module, spec: ExternalizeSpec
) -> tuple[tuple[str, Any], ...]:
    if spec.composite_op_name is None:
        return ()
    recorded: dict[str, Any] = {"version": 1}
    for name in spec.composite_attrs or ():
        if not hasattr(module, name):
            raise ExternalizeError(
                f"composite_attrs names {name!r}, but {type(module).__name__} at {path!r} "
                f"has no such attribute\n  try   one of {sorted(_public(module))}"
            )
        recorded[name] = _plain(path, name, getattr(module, name))
    return tuple((k, v) for k, v in recorded.items() if v is not None)


def _public(module: torch.nn.Module) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_") and name != "training"]


def _plain(path: str, name: str, value: Any) -> Any:
    """Return the value if a declaration can store it; None omits the attribute."""
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        value = value.item()
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple):
        return tuple(_plain(path, name, v) for v in value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(path, name, v) for key, v in value.items()}
    fits = not isinstance(value, int) or -(2**63) <= value < 2**63
    if fits and (value is None or isinstance(value, bool | int | float | str)):
        return value
    raise ExternalizeError(
        f"attribute {name!r} of module {path!r} is {value!r} ({type(value).__name__}), which a "
        "composite declaration cannot hold\n  try   None, bool, int of 64 bits, float, str, or "
        "a list or dictionary of them"
    )
