"""The torch op of a kernel: its reference in eager mode, one opaque node in an exported graph."""

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
    """What the op does with real tensors, and with those that only have shapes."""

    def __init__(self, kernel: Kernel, definition: Definition) -> None:
        self.kernel, self.definition = kernel, definition
        self._runner = Runner(kernel, definition)

    def real(self, *given: Any) -> Any:
        """Run the reference, or the source where that is asked for."""
        count = len(self.kernel.inputs)
        return self._given_back(self._runner.called(given[:count], given[count:]), given)

    def fake(self, *given: Any) -> Any:
        """The reference on shapes alone."""
        count = len(self.kernel.inputs)
        results = self.definition.results(self.definition.fn(*given[:count]))
        checks.results(self.kernel, results, given[count + 2 :])
        return self._given_back(results, given)

    def _given_back(self, results: Sequence[torch.Tensor], given: Sequence[Any]) -> Any:
        fresh = [_fresh(result, given) for result in results]
        return fresh[0] if self.definition.returns is Returns.ONE else fresh


def _fresh(result: torch.Tensor, arguments: Sequence[Any]) -> torch.Tensor:
    """A result with memory of its own, laid out row by row as a kernel writes it."""
    result = result.contiguous()
    # An op that hands back its own argument would let later writes to one change the other.
    aliases = (a for a in arguments if isinstance(a, torch.Tensor))
    return result.clone() if any(is_alias_of(result, a) for a in aliases) else result


def define(kernel: Kernel, definition: Definition) -> OpOverload:
    """The op of a kernel; the same kernel gets the same op, in every process."""
    identity = f"{kernel!r}{[KINDS[k] for k in definition.kinds]}{definition.returns}"
    overload = f"k{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    number = 0
    name = f"{kernel.name}.{overload}"
    while name in _DEFINED and not _DEFINED[name].definition.equals(definition):
        number += 1  # one Metal source with two references: each op keeps its own
        name = f"{kernel.name}.{overload}_{number}"
    if name not in _DEFINED:
        _DEFINED[name] = Implementation(kernel, definition)
        _LIBRARY.define(f"{name}{_schema(kernel, definition)}")
        _LIBRARY.impl(name, _DEFINED[name].real, "CompositeExplicitAutograd")
        # The reference is made of torch ops, and those know their gradients.
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
