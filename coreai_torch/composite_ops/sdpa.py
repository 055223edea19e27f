"""Scaled dot-product attention."""

from __future__ import annotations

from torch import Tensor, nn

from .attention_module import scaled_dot_product_attention


class SDPA(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Attention of `query [B, Nq, Tq, D]` to `key [B, Nkv, Tkv, D]`, `value [B, Nkv, Tkv, Dv]`.

    `Nq` is a multiple of `Nkv`: query head `h` reads key head `h // (Nq / Nkv)`. The options
    combine: a query attends to a key only if all of them allow it.
      - `scale`: factor of the logits; `D ** -0.5` if None.
      - `is_causal`: hides later keys. The last query is at the position of the last key.
      - `window_size`: a query attends to the last `window_size` keys, its own included; 0 means
        all.
      - `attn_mask`: broadcasts to `[B, Nq, Tq, Tkv]`; boolean (True attends) or added to the
        logits.
      - `sinks` `[Nq]`: one more logit per head, which takes weight but has no value.

    Logits, softmax and sum are float32; the result is rounded once, to query's dtype. A query
    without visible keys returns zeros, as in `torch.nn.functional.scaled_dot_product_attention`.
    `_use_hf_impl` selects the arithmetic of `transformers` instead, which rounds each step to the
    dtype of the model.
    """

    def __init__(
        self,
        scale: float | None = None,
        is_causal: bool = False,
        window_size: int = 0,
        _use_hf_impl: bool = False,
    ) -> None:
        super().__init__()
        if window_size < 0:
            raise ValueError(f"SDPA: window_size is {window_size}, it must be 0 or more")
        self.scale = scale
        self.is_causal = is_causal
        self.window_size = window_size
        self.version = 1
        self._use_hf_impl = _use_hf_impl

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask,
            sinks,
            self.scale,
            self.is_causal,
            self.window_size,
            self._use_hf_impl,
        )

    def extra_repr(self) -> str:
        return f"scale={self.scale}, is_causal={self.is_causal}, window_size={self.window_size}"
