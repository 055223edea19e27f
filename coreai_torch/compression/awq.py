"""AWQ: scale the inputs of a layer so that the weights of large inputs are rounded less.

torchao searches the scales (`torchao.prototype.awq`); the weight is rounded by the schemes of this
package, for which torchao has no tensors that run on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..errors import ConversionError

_SEARCHED = 20  # scales


def search_scales(
    rows: Tensor, inputs: Tensor, rounded: Callable[[Tensor], Tensor]
) -> Tensor | None:
    """Return a scale for each input with the least output error, or None if it is 1 for all.

    `rows` is the weight as a row per output; `rounded` compresses such a weight and returns its
    values.
    """
    observer_class, config_class = _torchao()
    config = config_class()
    config.rounded = rounded
    observer = observer_class(rows, None, config, _SEARCHED)
    observer(inputs, None)
    scales: Tensor = observer.calculate_qparams()
    return None if bool((scales == 1).all()) else scales


@cache
def _torchao() -> tuple[Any, Any]:
    """Return torchao's search, and a configuration for it that calls a function."""
    try:
        from torchao.core.config import AOBaseConfig
        from torchao.prototype.awq.core import AWQObserver
        from torchao.quantization.transform_module import register_quantize_module_handler
    except ImportError as error:
        raise ConversionError(
            f"method='awq' needs torchao, which cannot be imported: {error}\n"
            "  try   pip install torchao, or use method='gptq'"
        ) from error

    class RoundedByScheme(AOBaseConfig):  # type: ignore[misc]
        rounded: Callable[[Tensor], Tensor]

    @register_quantize_module_handler(RoundedByScheme)  # type: ignore[untyped-decorator]
    def _(module: Any, config: RoundedByScheme) -> Any:
        module.weight = torch.nn.Parameter(config.rounded(module.weight), requires_grad=False)
        return module

    return AWQObserver, RoundedByScheme
