"""Capture an unmodified decoder with its attention and its positions as single values.

The model is exported with an attention function of transformers' own interface, which becomes one
op, and with a cache that returns the new rows. Both are replaced when the graph is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ....capture.exporting import export
from ....errors import ConversionError, ExportError
from ...cache import CacheLayer

TOKENS = 1009  # tokens of the example: a number that is not another size of the model
_NAME = "coreai_torch_static"
# Arguments of attention functions that change the result and have no equivalent here.
_UNSUPPORTED = ("softcap", "s_aux", "head_mask", "position_bias")

_LIBRARY = torch.library.Library("coreai_torch_llm", "FRAGMENT")
_LIBRARY.define(
    "static_attention(Tensor q, Tensor k, Tensor v, int layer, float scaling, int window) -> Tensor"
)
ATTENTION = torch.ops.coreai_torch_llm.static_attention.default


@torch.library.register_fake("coreai_torch_llm::static_attention", lib=_LIBRARY)  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _attention_shape(
    q: Tensor, k: Tensor, v: Tensor, layer: int, scaling: float, window: int
) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


@torch.library.impl(_LIBRARY, "static_attention", "CompositeExplicitAutograd")  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _attention_of_new_rows(
    q: Tensor, k: Tensor, v: Tensor, layer: int, scaling: float, window: int
) -> Tensor:
    """Attend to the new rows only, so that a failed export can be explained by an eager run."""
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, is_causal=True, scale=scaling, enable_gqa=True).transpose(1, 2)


@dataclass
class Captured:
    """The graph of a decoder from embeddings to logits."""

    program: torch.export.ExportedProgram
    constants: dict[str, Tensor]  # parameters and buffers by the name of their placeholder
    embedding: Tensor  # `[vocabulary, hidden]`
    inputs: list[fx.Node] = field(default_factory=list)  # embeddings and positions

    @property
    def logits(self) -> fx.Node:
        """Return the node of the logits."""
        output = next(node for node in self.program.graph.nodes if node.op == "output")
        logits: fx.Node = output.args[0][-1]
        return logits

    @property
    def attention(self) -> list[fx.Node]:
        """Return the attention of each layer."""
        return [node for node in self.program.graph.nodes if node.target is ATTENTION]


class _NewRows(CacheLayer):
    """A layer that returns the rows that it is given."""

    keys = values = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


class _FromEmbeddings(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model, self.layers = model, layers

    def forward(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        logits: Tensor = self.model(
            inputs_embeds=embeddings,
            position_ids=positions,
            # A mask of rank 4 is passed on as it is; the attention does not read it.
            attention_mask=embeddings.new_zeros(1, 1, TOKENS, TOKENS),
            past_key_values=Cache(layers=[_NewRows() for _ in range(self.layers)]),
            use_cache=True,
        ).logits
        return logits


def capture(model: Any, layers: int) -> Captured:
    """Export a decoder in evaluation mode; raise for attention with unsupported arguments."""
    embedding = model.get_input_embeddings().weight
    example = (
        torch.zeros(1, TOKENS, embedding.shape[1], dtype=torch.float16),
        torch.arange(TOKENS)[None],
    )
    with _as_one_op(model) as found:
        try:
            program = export(_FromEmbeddings(model, layers), example, None, None)
        except ExportError as error:
            if not found:
                raise
            raise ConversionError(found[0]) from error
    if found:
        raise ConversionError(found[0])
    return _captured(program, embedding)


def _captured(program: torch.export.ExportedProgram, embedding: Tensor) -> Captured:
    signature = program.graph_signature
    named = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    stored = {**program.constants, **program.state_dict}
    constants = {name: stored[target].detach() for name, target in named.items()}
    captured = Captured(program, constants, embedding.detach())
    names = signature.user_inputs
    captured.inputs = [node for node in program.graph.nodes if node.name in names]
    return captured


@contextmanager
def _as_one_op(model: Any) -> Iterator[list[str]]:
    """Use one op as attention; yield a list of reasons to reject the model."""
    found: list[str] = []

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        scaling: float | None = None,
        sliding_window: int | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        wanted = [name for name in _UNSUPPORTED if options.get(name) is not None]
        if wanted:
            found.append(
                f"the attention of {type(model).__name__} has the argument {wanted[0]}, which a "
                "static bundle does not compute\n  try   pass target='gpu'"
            )
        factor = query.shape[3] ** -0.5 if scaling is None else scaling
        layer = getattr(module, "layer_idx", 0)
        return ATTENTION(query, key, value, layer, factor, sliding_window or 0), None

    ALL_ATTENTION_FUNCTIONS.register(_NAME, attention)
    config, before = model.config, model.config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield found
    finally:
        config._attn_implementation = before
