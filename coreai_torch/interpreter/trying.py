"""Run functions that emit ops of the dialect, to try out lowerings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..asset.extension import converted
from ..errors import ConversionError
from ..ir import graph, types
from ..ir.build import Build
from ..ir.dialect import MLIRError, Value
from .module import to_torch


def evaluate(function: Callable[..., Any], *inputs: Any) -> Any:
    """Build a graph with a function of dialect ops, run it in torch and return its results.

    ```python
    from coreai_torch.interpreter import evaluate
    from coreai_torch.ir import dialect

    doubled = evaluate(lambda x: dialect.mul(x, 2), [1.0, 3.0])
    assert doubled.tolist() == [2.0, 6.0]
    ```

    Args:
        function: takes one Value for each input, as a lowering does, and returns one or several.
            A result without a Value, such as that of `dialect.sizes`, is returned unchanged.
        inputs: tensors, or lists of numbers.
    """
    tensors = [torch.as_tensor(one) for one in inputs]
    tensors = [one.to(types.narrow(one.dtype)) for one in tensors]
    returned: list[Any] = []

    def body(_: Sequence[Value], given: Sequence[Value]) -> graph.Results:
        returned.append(function(*given))
        values = [one for one in _as_sequence(returned[0]) if isinstance(one, Value)]
        named = [(f"output_{place}", one) for place, one in enumerate(values)]
        return graph.Results([], named or [("unused", Build.current().number(0, torch.int32))])

    build = Build()
    with build.open():
        graph.entrypoint("main", [], [_port(*one) for one in enumerate(tensors)], body)
        _verify(build)
        results = list(_run(build, tensors).values())
    (result,) = returned
    if isinstance(result, Value):
        return results[0]
    if not any(isinstance(one, Value) for one in _as_sequence(result)):
        return result
    return tuple(results)


def _verify(build: Build) -> None:
    """Reject wrong element types and sizes, which the constructors of ops do not check."""
    try:
        build.module.operation.verify()
    except MLIRError as cause:
        raise ConversionError(
            f"The ops do not fit their operands: {cause}\n  try   compare the element types and "
            "sizes with the reference of the dialect"
        ) from cause


def _port(place: int, tensor: torch.Tensor) -> graph.Port:
    type_ = types.tensor(tuple(tensor.shape), types.element(tensor.dtype))
    return graph.Port(f"input_{place}", type_)


def _as_sequence(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple | list) else [result]


def _run(build: Build, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    named = {f"input_{place}": one for place, one in enumerate(tensors)}
    results: dict[str, torch.Tensor] = to_torch(converted(build.module))(**named)
    return results
