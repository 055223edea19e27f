"""`generate`: the decoding loops of transformers over the parts of an exported model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel
from transformers.exporters.base import ExportedModel
from transformers.exporters.utils import _find_multimodal_submodules

from ...errors import RunError
from .runner import CoreAIModelRunner

_STEPS = ("prefill", "decode", "model")


def generate(
    exported: ExportedModel, model: PreTrainedModel | None = None, **arguments: Any
) -> Any:
    """Return what `model.generate` returns, with the exported parts in place of its modules.

    Args:
        exported: a result of `export_for_generation`, or a whole model that was exported.
        model: the model it came from. It computes what the parts do not: embeddings of tokens
            beside images, and encoders that are no parts. Decoders of text do not need it.
        arguments: those of `generate` of transformers; sampling and beams work. Sizes of the
            prompt are those of the export, unless they are dynamic.
    """
    model = _empty(exported) if model is None else model
    config = arguments.pop("generation_config", exported.generation_config)
    if config is not None:
        arguments["generation_config"] = copy.deepcopy(config)
    with torch.no_grad(), running(exported, model):
        return model.generate(**arguments)


@contextmanager
def running(exported: ExportedModel, model: PreTrainedModel) -> Iterator[None]:
    """Let the modules of a model that were exported call their programs."""
    runners: Mapping[str, CoreAIModelRunner] = exported.runners
    whole = {name: runner for name, runner in runners.items() if name in _STEPS}
    parts = _find_multimodal_submodules(model) if set(runners) - set(_STEPS) else {}
    original = model.forward

    def step(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind_partial(*args, **kwargs).arguments
        given.update(given.pop("kwargs", {}))
        name = _step(whole, given)
        if name is None:
            kwargs.pop("logits_to_keep", None)  # the head was exported for all tokens
            with ExitStack() as stack:
                for part, module in parts.items():
                    if part in runners:
                        stack.enter_context(_replaced(module, _calling(module, runners[part])))
                return original(*args, **kwargs)
        return whole[name].call_known(given)

    with _replaced(model, step):
        yield


def _step(whole: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return the part that makes a step; None if the first one is made by several."""
    if "model" in whole:
        return "model"
    cache = given.get("past_key_values")
    length = 0 if cache is None else int(cache.get_seq_length())
    return "decode" if length else ("prefill" if "prefill" in whole else None)


def _calling(module: torch.nn.Module, runner: CoreAIModelRunner) -> Any:
    signature = inspect.signature(module.forward)

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind_partial(*args, **kwargs).arguments
        given.update(given.pop("kwargs", {}))
        return runner.call_known(given)

    return forward


@contextmanager
def _replaced(module: torch.nn.Module, forward: Any) -> Iterator[None]:
    original = module.forward
    forward.__signature__ = inspect.signature(original)  # which `generate` reads
    module.forward = forward
    try:
        yield
    finally:
        module.forward = original


def _empty(exported: ExportedModel) -> PreTrainedModel:
    """Return a model of the exported class without weights, for its loop alone."""
    names = {part.metadata.architecture for part in exported.components.values()}
    (name,) = names if len(names) == 1 else ("",)
    cls = getattr(transformers, name, None)
    if exported.config is None or cls is None or not set(exported.components) <= set(_STEPS):
        raise RunError(
            f"the parts {list(exported.components)} do not compute all of the model\n"
            "  try   pass the model: generate(exported, model, ...)"
        )
    with torch.device("meta"):
        model = cls(exported.config)
    found = {"device": property(lambda self: torch.device("cpu"))}
    model.__class__ = type(cls.__name__, (cls,), found)
    return model.eval()
