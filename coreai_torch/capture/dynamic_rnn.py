"""Keeps the lengths of sequences open while a model with recurrent layers is exported.

Torch learns the sizes of an LSTM's results by writing all its steps out, and that fixes their
number. Within `open_lengths` it reads them off the operands instead; the layer stays one op.
Where a table asks for the steps, as torch's own does, they are written out as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ..torch_compat import (
    COMPOSITE_IMPLICIT,
    aten,
    clear_dispatch_cache,
    global_decomposition_table,
)

_KEY = COMPOSITE_IMPLICIT
_DECOMPOSITIONS = global_decomposition_table["post_autograd"]


def _output(x: Tensor, state: Tensor, bidirectional: bool) -> Tensor:
    ways = 2 if bidirectional else 1
    return x.new_empty((*x.shape[:2], ways * state.shape[2]))


def _lstm(x: Tensor, hx: list[Tensor], *options: Any) -> tuple[Tensor, ...]:
    bidirectional = options[-2]
    return _output(x, hx[0], bidirectional), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _with_one_state(x: Tensor, hx: Tensor, *options: Any) -> tuple[Tensor, ...]:
    return _output(x, hx, options[-2]), torch.empty_like(hx)


_SIZES: dict[Any, Callable[..., Any]] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _with_one_state,
    aten.rnn_tanh.input: _with_one_state,
    aten.rnn_relu.input: _with_one_state,
}


def _unless_traced(sizes: Callable[..., Any], steps: Callable[..., Any]) -> Callable[..., Any]:
    """While the layer is taken apart its steps are asked for, not only the sizes of results."""

    def kernel(*args: Any) -> Any:
        return sizes(*args) if get_proxy_mode() is None else steps(*args)

    return kernel


@contextmanager
def open_lengths() -> Iterator[None]:
    """Export and decompose in here, both, for a recurrent layer over an unknown length."""
    kernels = {op: dict(op.py_kernels) for op in _SIZES}
    decompositions = {op: _DECOMPOSITIONS[op] for op in _SIZES if op in _DECOMPOSITIONS}
    try:
        for op, sizes in _SIZES.items():
            kernel = _unless_traced(sizes, kernels[op][_KEY])
            op.py_kernels[_KEY] = kernel
            _DECOMPOSITIONS[op] = kernel
            clear_dispatch_cache(op)
        yield
    finally:
        for op, kept in kernels.items():
            op.py_kernels.clear()
            op.py_kernels.update(kept)
            _DECOMPOSITIONS.pop(op, None)
            clear_dispatch_cache(op)
        _DECOMPOSITIONS.update(decompositions)
