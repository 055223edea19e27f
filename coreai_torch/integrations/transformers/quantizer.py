"""`CoreAIQuantizer`: `compress` as a quantizer of `transformers.exporters`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers.exporters.quantizers.base import ExportQuantizer

from ... import compress
from .config import FORMAT


class CoreAIQuantizer(ExportQuantizer):  # type: ignore[misc]  # mypy does not follow transformers
    """Compress the weights of a copy of each part before its export.

    Args:
        scheme: a scheme of `compress`, as "int4/32", or one for each layer.
        calibration_dataset: arguments of the model as dictionaries, for `method` and
            `activations`; those of `generate` for `export_for_generation`.
        options: other arguments of `compress`, such as `method="gptq"` or `skip="lm_head"`.
    """

    supported_formats = (FORMAT,)

    def __init__(
        self,
        scheme: Any = None,
        calibration_dataset: Iterable[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(calibration_dataset)
        self.scheme, self.options = scheme, options

    def quantize(
        self, model: torch.nn.Module, sample_inputs: dict[str, Any], export_format: str
    ) -> torch.nn.Module:
        """Compress a module in place; calibration uses the arguments that it is exported with."""
        data = None
        if self.calibration_dataset:
            data = list(self.traced_calibration(sample_inputs))
        compress(model, self.scheme, calibration=data, **self.options)
        return model
