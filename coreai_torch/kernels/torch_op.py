"""The torch op of a kernel: its reference in eager mode, one opaque node in an exported graph."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from ..capture.validate import KERNELS as NAMESPACE
from ..errors import KernelError
from ..ir.metal import Kernel
from . import checks
from .definition import KINDS, Definition, Returns

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_DEFINED: dict[str, Reference] = {}


class Reference:
    """A kernel's reference, held to the shapes that the caller promises."""

    def __init__(self, kernel: Kernel, definition: Definition) -> None:
        self.kernel, self.definition = kernel, definition

    def __call__(self, *given: Any) -> Any:
        """Run the reference on the arguments of the op."""
        count = len(self.kernel.inputs)
        arguments, result_shapes = given[:count], given[count + 2 :]
        results = self.definition.results(self.definition.fn(*arguments))
        self._held_to(results, result_shapes)
        fresh = [_fresh(result, arguments) for result in results]
        return fresh[0] if self.definition.returns is Returns.ONE else fresh

    def _held_to(self, results: Sequence[Any], result_shapes: Sequence[Any]) -> None:
        name, names = self.kernel.name, self.kernel.results
        if len(results) != len(names) or not all(isinstance(r, torch.Tensor) for r in results):
            raise KernelError(
                f"Metal kernel {name!r}: torch_defn returned {results!r}, but its results are "
                f"{list(names)}\n  try   one tensor for each"
            )
        for result, tensor, promised in zip(names, results, result_shapes, strict=True):
            checks.dtype(name, f"the result {result!r}", tensor.dtype)
            checks.shape(name, result, promised, tensor.shape)


def _fresh(result: torch.Tensor, arguments: Sequence[Any]) -> torch.Tensor:
    """A result with memory of its own, laid out row by row as a kernel writes it."""
    result = result.contiguous()
    # An op that hands back its own argument would let later writes to one change the other.
    aliases = (a for a in arguments if isinstance(a, torch.Tensor))
    return result.clone() if any(torch._C._is_alias_of(result, a) for a in aliases) else result


def define(kernel: Kernel, definition: Definition) -> torch._ops.OpOverload:
    """The op of a kernel; the same kernel gets the same op, in every process."""
    identity = f"{kernel!r}{[KINDS[k] for k in definition.kinds]}{definition.returns}"
    overload = f"k{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    number = 0
    name = f"{kernel.name}.{overload}"
    while name in _DEFINED and not _DEFINED[name].definition.equals(definition):
        number += 1  # one Metal source with two references: each op keeps its own
        name = f"{kernel.name}.{overload}_{number}"
    if name not in _DEFINED:
        _DEFINED[name] = Reference(kernel, definition)
        _LIBRARY.define(f"{name}{_schema(kernel, definition)}")
        _LIBRARY.impl(name, _DEFINED[name], "CompositeExplicitAutograd")
        # The reference is made of torch ops, and those know their gradients.
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _DEFINED[name], lib=_LIBRARY)
    packet = getattr(getattr(torch.ops, NAMESPACE), kernel.name)
    found: torch._ops.OpOverload = getattr(packet, name.partition(".")[2])
    return found


def _schema(kernel: Kernel, definition: Definition) -> str:
    takes = [f"{KINDS[kind]} input_{i}" for i, kind in enumerate(definition.kinds)]
    takes += ["SymInt[] threads_per_grid", "SymInt[] threads_per_thread_group"]
    takes += [f"SymInt[] result_shape_{i}" for i in range(len(kernel.results))]
    gives = "Tensor" if definition.returns is Returns.ONE else "Tensor[]"
    return f"({', '.join(takes)}) -> {gives}"
