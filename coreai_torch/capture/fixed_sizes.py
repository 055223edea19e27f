"""Reject decompositions that fix dynamic sizes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import ExportError


def dynamic_sizes(program: torch.export.ExportedProgram) -> dict[str, torch.SymInt]:
    """Return the dynamic sizes of the inputs, by names such as `x.shape[0]`."""
    found: dict[str, torch.SymInt] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else ()
        found |= {f"{node.name}.shape[{i}]": s for i, s in enumerate(sizes) if not _is_fixed(s)}
    return found


def reject_fixed_sizes(before: Mapping[str, torch.SymInt]) -> None:
    """Raise if a size that was dynamic has one value now.

    A decomposition that reads a size as a number fixes it: `torch.triu_indices(x.shape[0], 4)`.
    torch does not report that, and the program would run at the exported size only.
    """
    fixed = {name: size for name, size in before.items() if _is_fixed(size)}
    if not fixed:
        return
    sizes = ", ".join(f"{name} = {size.node.expr}" for name, size in fixed.items())
    raise ExportError(
        f"a decomposition fixed sizes that were exported as dynamic: {sizes}\n"
        "  try   export these sizes as static, or pass decompositions={op: None} or another "
        "function for the op that reads them"
    )


def _is_fixed(size: int | torch.SymInt) -> bool:
    return isinstance(size, int) or bool(size.node.expr.is_number)
