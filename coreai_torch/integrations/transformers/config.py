"""The options of an export to Core AI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers.exporters.configs import DynamoConfig

FORMAT = "coreai"


@dataclass
class CoreAIConfig(DynamoConfig):  # type: ignore[misc]  # mypy does not follow transformers
    """The options of an export to Core AI, beside those of `DynamoConfig`.

    Args:
        precision: "float16" or "bfloat16" to compute in half precision, or a `Precision`.
        target: the compute unit to emit for, or a `Target`, as for `convert`.
        exact: whether infinities, NaN and overflow give the same results as in torch.
        compression: a scheme of `compress`, as "int4/32", or one for each layer.
        recognize: turn norms, rotary embeddings and attention into composites.
        states: make states of arguments that the model writes in place, such as static caches;
            False makes an input and an output of each.
        cache_length: tokens of a static cache for `export_for_generation`, prompt included; with
            None, the generation config decides, by default for a cache that grows.
        verify: compare the program with torch, as for `convert`.
    """

    export_format: str = FORMAT

    precision: Any = None
    target: Any = None
    exact: bool = False
    compression: Any = None
    recognize: bool | Sequence[str] = False
    states: bool = True
    cache_length: int | None = None
    verify: bool | str = True
