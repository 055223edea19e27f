"""`prepare`: the first step of `convert`, which shows the inputs, states and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..capture import prepare as capturing
from ..capture.argument_checks import check_module, check_returned
from ..capture.exporting import call_export_fn
from ..converter import TorchConverter, capture_rules, check_converter


def prepare(
    model_or_exported: capturing.Source,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    export_fn: Callable[[torch.nn.Module], torch.export.ExportedProgram] | None = None,
    converter: TorchConverter | None = None,
) -> capturing.Captured:
    """Export and decompose a model, and plan its inputs, states and outputs.

    Pass the result to `convert` in place of the model, with names that depend on the plan: which
    arguments are states is known only after the decomposition.

    ```python
    captured = coreai_torch.prepare(torch.nn.Linear(8, 4).eval(), (torch.randn(2, 8),))
    names = [f"model.{port.name}" for port in captured.plan.inputs]
    program = coreai_torch.convert(captured, input_names=names)
    ```

    Args:
        model_or_exported: a model, or an `ExportedProgram`, decomposed or not.
        args: positional example inputs to export the model with.
        kwargs: example inputs by name.
        dynamic_shapes: dynamic sizes, as for `torch.export.export`.
        export_fn: a function that exports the model in place of `torch.export.export`. While it
            runs, functions that read tensor values are rewritten as in `convert`.
        converter: the one that `convert` receives, if it has own lowerings or decompositions.
    """
    check_converter(converter)
    rules = capture_rules(converter)
    if export_fn is not None:
        check_module(model_or_exported, export_fn)
        assert isinstance(model_or_exported, torch.nn.Module)
        model_or_exported = call_export_fn(model_or_exported, export_fn)
        check_returned(model_or_exported)
    return capturing.prepare(model_or_exported, args, kwargs, dynamic_shapes, rules=rules)
