"""Scaled dot-product attention."""

from __future__ import annotations

from torch import Tensor, nn

from ._sdpa import scaled_dot_product_attention


class SDPA(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Attention of `query [B, Nq, Tq, D]` to `key [B, Nkv, Tkv, D]`, `value [B, Nkv, Tkv, Dv]`.

    `Nq` is a multiple of `Nkv`: query head `h` reads key head `h // (Nq / Nkv)`. The options join:
    a key must be allowed by each of them.
      - `scale`: of the logits; `D ** -0.5` if None.
      - `is_causal`: a query sees no later key. The last query stands at the last key.
      - `window_size`: a query sees the last `window_size` keys up to and with its own; 0 is all.
      - `attn_mask`: expands to `[B, Nq, Tq, Tkv]`; boolean (true is seen) or added to the logits.
      - `sinks` `[Nq]`: one more logit per head, which takes weight and gives no value.

    Logits, softmax and sum are float32; the result is rounded once, to query's dtype. A query
    that sees no key gives zeros, as `torch.nn.functional.scaled_dot_product_attention` does.
    """

    def __init__(
        self, scale: float | None = None, is_causal: bool = False, window_size: int = 0
    ) -> None:
        super().__init__()
        if window_size < 0:
            raise ValueError(f"SDPA: window_size is {window_size}, must be 0 (no window) or more")
        self.scale = scale
        self.is_causal = is_causal
        self.window_size = window_size
        self.version = 1

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        return scaled_dot_product_attention(
            query, key, value, attn_mask, sinks, self.scale, self.is_causal, self.window_size
        )

    def extra_repr(self) -> str:
        return f"scale={self.scale}, is_causal={self.is_causal}, window_size={self.window_size}"
