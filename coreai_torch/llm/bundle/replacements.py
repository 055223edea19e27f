"""Parts of transformers in a form that exports for any number of tokens.

Heads are repeated by one op, which attention removes. Recurrences are cut into chunks of a fixed
size there, with a loop in Python or a padding that depends on the number of tokens; here they loop
over the tokens in the program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...composite_ops import GatedDeltaUpdate
from ...passes.recognize.composites import repeat_heads


@contextmanager
def exportable(model: torch.nn.Module) -> Iterator[None]:
    """Replace functions and methods in the modules of a model while it is exported."""
    names = {type(one).__module__ for one in model.modules()} | {_ATTENTION}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    places: list[tuple[Any, str, Any]] = [
        (module, name, new)
        for module in modules
        for name, new in _FUNCTIONS.items()
        if hasattr(module, name)
    ]
    places += [
        (getattr(module, name), "forward", new)
        for module in modules
        for name, new in _FORWARDS.items()
        if hasattr(module, name)
    ]
    before = [getattr(owner, name) for owner, name, _ in places]
    try:
        for owner, name, new in places:
            setattr(owner, name, new)
        yield
    finally:
        for (owner, name, _), old in zip(places, before, strict=True):
            setattr(owner, name, old)


def _gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Run the gated delta rule on `[batch, tokens, heads, width]`."""
    update = GatedDeltaUpdate(use_qk_l2norm_in_kernel)
    output, state = update(
        *(x.transpose(1, 2) for x in (query, key, value, g, beta)), initial_state
    )
    return output, state


def _mamba2_scan(
    hidden_states: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    initial_states: Tensor,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """Run the state space of Mamba 2: `x [b, s, h, p]`, `B, C [b, s, g, n]`, state `[b, h, p, n]`.

    Each token changes the state to `exp(A dt) * state + dt * x ⊗ B`; its output is `state · C`.
    """
    batch, _, heads, _ = hidden_states.shape
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = functional.softplus(dt) if dt_softplus else dt
    dt = torch.clamp(dt, min=dt_limit[0], max=dt_limit[1]).float()
    x = hidden_states.float()
    group = heads // b.shape[2]
    b, c = (one.float().repeat_interleave(group, dim=2, output_size=heads) for one in (b, c))
    decay = torch.exp(a.float() * dt)
    steps = tuple(
        one.transpose(1, 2).contiguous().flatten(0, 1)
        for one in (x * dt[..., None], b, c, decay[..., None])
    )
    state = initial_states.float().flatten(0, 1)
    carried = (torch.zeros((), dtype=torch.int64), state, torch.zeros_like(steps[0]))
    _, state, output = torch.ops.higher_order.while_loop(_has_token, _take_token, carried, steps)
    output = output.unflatten(0, (batch, heads)).transpose(1, 2)
    if more.get("D") is not None:
        output = output + more["D"][:, None] * x
    return output.contiguous(), state.unflatten(0, (batch, heads))


def _has_token(at: Tensor, state: Tensor, outputs: Tensor, *steps: Tensor) -> Tensor:
    return at < outputs.shape[1]


def _take_token(
    at: Tensor, state: Tensor, outputs: Tensor, *steps: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    index = at.reshape(1)
    x, b, c, decay = (one.index_select(1, index) for one in steps)
    state = decay * state + x.mT * b
    return at + 1, state, outputs.index_copy(1, index, torch.bmm(c, state.mT))


def _llama4_experts(self: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    """Run all experts on all tokens, as the model does, with the experts as a separate axis.

    The model splits `[experts * tokens, width]` again; for a dynamic number of tokens torch 2.13
    compares strides there, and records `n * min(width, width * n) == width * n` as a bound on n.
    """
    tokens = hidden_states.reshape(-1, self.hidden_dim)
    scores, logits = self.router(tokens)
    experts = self.experts
    gate, up = torch.matmul(tokens * scores.T.unsqueeze(-1), experts.gate_up_proj).chunk(2, -1)
    routed = torch.matmul(up * experts.act_fn(gate), experts.down_proj)
    return self.shared_expert(tokens) + routed.sum(0), logits


def _repeat_kv(hidden_states: Tensor, n_rep: int) -> Tensor:
    """Repeat each head of keys or values `[batch, heads, length, width]`."""
    result: Tensor = hidden_states if n_rep == 1 else repeat_heads(hidden_states, n_rep)
    return result


_ATTENTION = "transformers.integrations.sdpa_attention"  # models call it without importing it
_FUNCTIONS: dict[str, Any] = {
    "repeat_kv": _repeat_kv,
    "torch_chunk_gated_delta_rule": _gated_delta_rule,
    "mamba2_chunk_scan": _mamba2_scan,
}
_FORWARDS: dict[str, Any] = {"Llama4TextMoe": _llama4_experts}
