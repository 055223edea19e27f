"""How a row of `transformers` is written: a model class by name and its configuration."""

from __future__ import annotations

from typing import Any

from .row import Row, Tensor


def model(class_name: str, config: dict[str, Any]) -> Any:
    """The unmodified model with random weights; `use_cache` is off unless the row says more."""
    import transformers

    cls = getattr(transformers, class_name)
    return cls(cls.config_class(**config))


def hf(
    name: str,
    class_name: str,
    family: str,
    config: dict[str, Any],
    inputs: dict[str, Tensor],
    **more: Any,
) -> Row:
    return Row(
        name, "transformers", family, lambda: model(class_name, config), dict(inputs), **more
    )
