"""The functions of a static bundle, staged in one converter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from ....capture.prepare import prepare
from ....converter import TorchConverter, capture_rules
from ....errors import ConversionError, ExportError
from ....fx.programs import copied_module, with_graph
from ....torch_compat import FakeTensorMode, pytree
from . import names
from .attention_ops import Attention, register_ops
from .capturing import TOKENS, Captured
from .rewriting import Rewritten


class LoadEmbeddings(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Return the table of embeddings."""

    def __init__(self, embedding: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", embedding[:, None])

    def forward(self) -> Tensor:
        return self.table.clone()


class GatherEmbeddings(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Look up tokens `[1, q]` in the table; return `[1, q, 1, hidden]`."""

    def forward(self, tokens: Tensor, table: Tensor) -> Tensor:
        return table.index_select(0, tokens[0])[None].to(torch.float16)


class Step(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Run q tokens from a step and update both caches."""

    wants_logits = True

    def __init__(self, decoder: Rewritten) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        embeddings: Tensor,
        position_ids: Tensor,
        step: Tensor,
        mask: Tensor,
        table: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        positions = position_ids[0].to(torch.int32)
        attention = Attention(keys, values, step, mask, positions)
        logits = self.decoder.run(
            embeddings, positions, table, attention, wants_logits=self.wants_logits
        )
        keys.copy_(attention.keys)
        values.copy_(attention.values)
        if logits is None:
            touched = [one[-1:, :, :1, :, :1] for one in (attention.keys, attention.values)]
            return (touched[0] + touched[1])[0]
        return logits.data.permute(0, 2, 3, 1).to(torch.float16)


class Prompt(Step):
    """Update the caches only; the output is never read."""

    wants_logits = False


def stage_static(converter: TorchConverter, captured: Captured, shape: Any, context: int) -> None:
    """Stage all functions, each with static sizes; they share the weights."""
    register_ops(converter)
    table = captured.embedding[:, None]
    load = _export(converter, LoadEmbeddings(captured.embedding), ())
    converter.add_exported_program(load, [], [names.TABLE], None, names.LOAD)
    tokens = torch.zeros(1, TOKENS, dtype=torch.int32)
    gather = _export(converter, GatherEmbeddings(), (tokens, table))
    for query in names.QUERIES:
        one = resized(gather, query, SLOTS)
        inputs = [names.TOKENS, names.TABLE]
        converter.add_exported_program(
            one, inputs, [names.GATHERED], None, names.gather_name(query)
        )
    decoder = Rewritten(captured, context)
    example = (
        torch.zeros(1, TOKENS, 1, table.shape[2], dtype=torch.float16),
        torch.zeros(1, TOKENS, dtype=torch.uint16),
        torch.zeros(1, dtype=torch.int32),
        torch.zeros(1, SLOTS, 1, TOKENS, dtype=torch.float16),
        table,
        *(torch.zeros(*shape, 1, SLOTS, dtype=torch.float16) for _ in range(2)),
    )
    for module, family in ((Step(decoder), names.EXTEND), (Prompt(decoder), names.PROMPT)):
        program = _export(converter, module, example)
        _stage_ladder(converter, program, family, context)


def _stage_ladder(
    converter: TorchConverter, program: torch.export.ExportedProgram, family: str, context: int
) -> None:
    for slots in names.slots(context):
        for query in names.QUERIES:
            converter.add_exported_program(
                resized(program, query, slots),
                list(names.EXTEND_INPUTS),
                [names.LOGITS],
                [names.KEYS, names.VALUES],
                names.step_name(family, slots, query),
            )


def _export(
    converter: TorchConverter, module: nn.Module, example: tuple[Tensor, ...]
) -> torch.export.ExportedProgram:
    try:
        return prepare(module, example, None, None, rules=capture_rules(converter)).program
    except ExportError as error:
        cause: BaseException | None = error
        while cause is not None and type(cause) is not ConversionError:
            cause = cause.__cause__
        raise cause or error from error


SLOTS = 1013  # slots of the example, another prime number


def resized(
    program: torch.export.ExportedProgram, tokens: int, slots: int
) -> torch.export.ExportedProgram:
    """Return the program for numbers of tokens and slots; the weights are shared."""
    sizes = {TOKENS: tokens, SLOTS: slots}

    def number(value: Any) -> Any:
        return sizes.get(value, value) if isinstance(value, int) else value

    module = copied_module(program.graph_module)
    with FakeTensorMode() as mode:
        for node in module.graph.nodes:
            if node.op == "placeholder":
                node.meta["val"] = _like(node.meta["val"], sizes, mode)
            elif node.op == "call_function":
                node.args, node.kwargs = pytree.tree_map(number, (node.args, node.kwargs))
                node.meta["val"] = _value(node)
        example = pytree.tree_map(lambda one: _like(one, sizes, mode), program.example_inputs)
    return with_graph(program, module, example_inputs=example)


def _like(value: Any, sizes: dict[int, int], mode: FakeTensorMode) -> Any:
    if not isinstance(value, Tensor):
        return value
    shape = [sizes.get(size, size) for size in value.shape]
    return torch.empty(shape, dtype=value.dtype)


def _value(node: fx.Node) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    return node.target(*args, **kwargs)
