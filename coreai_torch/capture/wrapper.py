"""A module around a model, which has the model's attributes."""

from __future__ import annotations

from typing import Any

import torch


class Wrapper(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The base class of modules that call a model with other arguments."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._wrapped_model = model

    @property
    def wrapped(self) -> torch.nn.Module:
        """The model."""
        model: torch.nn.Module = super().__getattr__("_wrapped_model")
        return model

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model, such as a buffer that is a state."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_wrapped_model"), name)
