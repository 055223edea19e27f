"""Build rows of `transformers` from the name of a model class and a configuration."""

from __future__ import annotations

from typing import Any

from .row import Row, Tensor


def model(class_name: str, config: dict[str, Any]) -> Any:
    """Return the unmodified model with random weights."""
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
        name,
        "transformers",
        family,
        lambda: model(class_name, config),
        dict(inputs),
        source=(class_name, config),
        **more,
    )
