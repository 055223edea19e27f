"""The torch op of a kernel: runs the reference in eager mode, is one node in an export."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from ..capture.validate import KERNELS as NAMESPACE
from ..ir.metal import Kernel
from ..torch_compat import OpOverload, is_alias_of
from . import checks
from .definition import KINDS, Definition, Returns
from .running import Runner

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_DEFINED: dict[str, Implementation] = {}


class Implementation:
    """Implementation of the op for real tensors and for fake tensors."""

    def __init__(self, kernel: Kernel, definition: Definition) -> None:
        self.kernel, self.definition = kernel, definition
        self._runner = Runner(kernel, definition)

    def real(self, *given: Any) -> Any:
        """Run the reference or, inside of `emulated`, the source."""
        count = len(self.kernel.inputs)
        return self._returned(self._runner.call(given[:count], given[count:]), given)

    def fake(self, *given: Any) -> Any:
        """Run the reference on fake tensors."""
        count = len(self.kernel.inputs)
        results = self.definition.results(self.definition.fn(*given[:count]))
        checks.results(self.kernel, results, given[count + 2 :])
        return self._returned(results, given)

    def _returned(self, results: Sequence[torch.Tensor], given: Sequence[Any]) -> Any:
        fresh = [_fresh(result, given) for result in results]
        return fresh[0] if self.definition.returns is Returns.ONE else fresh


def _fresh(result: torch.Tensor, arguments: Sequence[Any]) -> torch.Tensor:
    """Return a contiguous result that shares no memory with the arguments."""
    result = result.contiguous()
    # If an op returned its argument, later writes to one would change the other.
    aliases = (a for a in arguments if isinstance(a, torch.Tensor))
    return result.clone() if any(is_alias_of(result, a) for a in aliases) else result


def define(kernel: Kernel, definition: Definition) -> OpOverload:
    """Define the op of a kernel; equal kernels get the same op, in every process."""
    identity = f"{kernel!r}{[KINDS[k] for k in definition.kinds]}{definition.returns}"
    overload = f"k{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    number = 0
    name = f"{kernel.name}.{overload}"
    while name in _DEFINED and not _DEFINED[name].definition.equals(definition):
        number += 1  # same Metal source with another reference: a separate op
        name = f"{kernel.name}.{overload}_{number}"
    if name not in _DEFINED:
        _DEFINED[name] = Implementation(kernel, definition)
        _LIBRARY.define(f"{name}{_schema(kernel, definition)}")
        _LIBRARY.impl(name, _DEFINED[name].real, "CompositeExplicitAutograd")
        # The reference consists of torch ops, which have gradients.
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _DEFINED[name].fake, lib=_LIBRARY)
    packet = getattr(getattr(torch.ops, NAMESPACE), kernel.name)
    found: OpOverload = getattr(packet, name.partition(".")[2])
    return found


def _schema(kernel: Kernel, definition: Definition) -> str:
    takes = [f"{KINDS[kind]} input_{i}" for i, kind in enumerate(definition.kinds)]
    takes += ["SymInt[] threads_per_grid", "SymInt[] threads_per_thread_group"]
    takes += [f"SymInt[] result_shape_{i}" for i in range(len(kernel.results))]
    gives = "Tensor" if definition.returns is Returns.ONE else "Tensor[]"
    return f"({', '.join(takes)}) -> {gives}"
