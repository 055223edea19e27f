"""The gated delta rule: linear attention with a state that is decayed and corrected each step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._shapes import FLOATS, bind_axes, is_size, require_dtype, require_multiple

_OP = "GatedDeltaUpdate"


class GatedDeltaUpdate(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Run the recurrence of Qwen3-Next over `S` steps, starting from `initial_state`.

    `query`, `key` `[B, Nk, S, Dk]`; `value` `[B, Nv, S, Dv]`; `g` (log of the decay), `beta`
    `[B, Nv, S]`; state `[B, Nv, Dk, Dv]`. `Nv` is a multiple of `Nk`: value head `h` reads key
    head `h // (Nv / Nk)`. Each step is

        state = exp(g) * state
        state = state + k ⊗ (beta * (v - kᵀ state))
        output = (q / sqrt(Dk))ᵀ state

    in float32, with q and k first divided by `sqrt(sum(x²) + 1e-6)` if `use_qk_l2_norm`.
    Returns the output `[B, S, Nv, Dv]` in query's dtype and the final state in the dtype of
    `initial_state`.

    It exports as one `scan` (a strict export: `while_loop`), or without a loop if `S` is the
    constant 1.
    """

    def __init__(self, use_qk_l2_norm: bool = True) -> None:
        super().__init__()
        self.use_qk_l2_norm = use_qk_l2_norm
        self.version = 1

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        initial_state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        sizes = _sizes(query, key, value, g, beta, initial_state)
        group = sizes["Nv"] // sizes["Nk"]
        steps = (
            _per_value_head(self._normalize(query) * sizes["Dk"] ** -0.5, group),
            _per_value_head(self._normalize(key), group),
            value.float().flatten(0, 1),
            g.float().exp().flatten(0, 1).unsqueeze(-1),
            beta.float().flatten(0, 1).unsqueeze(-1),
        )
        output, state = _run(steps, initial_state.float().flatten(0, 1))
        heads = (sizes["B"], sizes["Nv"])
        output = output.unflatten(0, heads).transpose(1, 2)
        return output.to(query.dtype), state.unflatten(0, heads).to(initial_state.dtype)

    def extra_repr(self) -> str:
        return f"use_qk_l2_norm={self.use_qk_l2_norm}"

    def _normalize(self, x: Tensor) -> Tensor:
        x = x.float()
        if not self.use_qk_l2_norm:
            return x
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _sizes(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor
) -> dict[str, int]:
    require_dtype(_OP, FLOATS, query=query, key=key, value=value)
    require_dtype(_OP, FLOATS, g=g, beta=beta, initial_state=initial_state)
    sizes: dict[str, int] = {}
    bind_axes(_OP, "query", query, "B Nk S Dk", sizes)
    bind_axes(_OP, "key", key, "B Nk S Dk", sizes)
    bind_axes(_OP, "value", value, "B Nv S Dv", sizes)
    bind_axes(_OP, "g", g, "B Nv S", sizes)
    bind_axes(_OP, "beta", beta, "B Nv S", sizes)
    bind_axes(_OP, "initial_state", initial_state, "B Nv Dk Dv", sizes)
    require_multiple(_OP, "Nv", "Nk", sizes)
    if is_size(sizes["S"], 0):
        raise ValueError(f"{_OP}: S is 0, it must be 1 or more")
    return sizes


def _per_value_head(x: Tensor, group: int) -> Tensor:
    """Expand `[B, Nk, S, Dk]` to `[B * Nv, S, Dk]`, each key head once per value head."""
    return x.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(0, 2)


def _run(steps: tuple[Tensor, ...], state: Tensor) -> tuple[Tensor, Tensor]:
    """Run all steps (tensors `[heads, S, ...]`) and return the outputs and the final state."""
    value = steps[2]
    length = value.shape[1]
    if is_size(length, 1):
        return _step(state, *steps)
    if torch.compiler.is_compiling():
        strict = torch.compiler.is_dynamo_compiling()  # dynamo rejects the op of a scan
        return _carry_outputs(steps, state) if strict else _scan(steps, state)
    outputs = []
    for at in range(length):
        output, state = _step(state, *(x[:, at : at + 1] for x in steps))
        outputs.append(output)
    return torch.cat(outputs, 1), state


def _scan(steps: tuple[Tensor, ...], state: Tensor) -> tuple[Tensor, Tensor]:
    """Run all steps in time linear in their number.

    Call the op, not torch's wrapper: in a non-strict export that compiles its body with dynamo,
    whose cache specializes a dynamic batch to the size of an earlier static export.
    """
    rows = [x.movedim(1, 0).unsqueeze(2).contiguous() for x in steps]
    loop = torch.ops.higher_order.scan
    state, outputs = loop(_scan_step, [state.contiguous()], rows, ())
    return outputs.squeeze(2).movedim(0, 1), state


def _scan_step(state: Tensor, *row: Tensor) -> list[Tensor]:
    output, state = _step(state, *row)
    return [state, output]


def _carry_outputs(steps: tuple[Tensor, ...], state: Tensor) -> tuple[Tensor, Tensor]:
    """Run all steps; each copies all outputs: 4,096 steps take 8 times as long as a scan."""
    # A loop returns tensors with the strides that it takes; the value may be a permuted view.
    value = steps[2]
    outputs = torch.zeros_like(value, memory_format=torch.contiguous_format)
    carried = (value.new_zeros((), dtype=torch.int64), state.contiguous(), outputs)
    loop = torch.ops.higher_order.while_loop
    _, state, output = loop(_has_step, _take_step, carried, steps)
    return output, state


def _has_step(at: Tensor, state: Tensor, outputs: Tensor, *steps: Tensor) -> Tensor:
    return at < outputs.shape[1]


def _take_step(
    at: Tensor, state: Tensor, outputs: Tensor, *steps: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    index = at.reshape(1)
    output, state = _step(state, *(x.index_select(1, index) for x in steps))
    return at + 1, state, outputs.index_copy(1, index, output)


def _step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    state = decay * state
    state = state + key.mT * (beta * (value - torch.bmm(key, state)))
    return torch.bmm(query, state), state
