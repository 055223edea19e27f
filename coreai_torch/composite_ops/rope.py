"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._shapes import FLOATS, bind_axes, require_dtype, require_expandable, shape_text


class RoPE(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Rotate pairs of features by an angle proportional to the position.

    `input` is `[batch, …, seq, embed]`. The pairs are the two halves of the rotated features, or
    neighbours if `interleaved`. `dims` rotates only the first `dims` features; `embed` below then
    means `dims`.

    The angles are the first of these that applies:
      - `cos` and `sin`, both or neither: of width `embed / 2`, one per pair, or `embed`, one per
        feature. Shape `[seq, width]`, `[batch, seq, width]`, or any shape that broadcasts to the
        input. All other arguments are then ignored.
      - positions times frequencies. Positions: `position_ids` (`[seq]` or `[batch, seq]`)
        unscaled, or `(offset + arange(seq)) * scale`. Frequencies: `freqs` (`[embed / 2]`), or
        `1 / base ** (i / (embed / 2))`.

    Computed angles and the rotation are float32; with `cos` and `sin` the rotation runs in the
    wider of their dtype and the input's. The result has the input's dtype. With `_use_hf_impl`
    cosines and sines are rounded to the input's dtype before the rotation, as in `transformers`.
    """

    def __init__(
        self,
        scale: float = 1.0,
        base: float = 1e4,
        dims: int | None = None,
        interleaved: bool = False,
        _use_hf_impl: bool = False,
    ) -> None:
        super().__init__()
        if dims is not None and (dims < 2 or dims % 2):
            raise ValueError(
                f"RoPE: dims is {dims}, it must be None or an even number of at least 2"
            )
        if not base > 0:
            raise ValueError(f"RoPE: base is {base}, it must be greater than 0")
        self.scale = scale
        self.base = base
        self.dims = dims
        self.interleaved = interleaved
        self.version = 1
        self._use_hf_impl = _use_hf_impl

    def forward(
        self,
        input: Tensor,
        cos: Tensor | None = None,
        sin: Tensor | None = None,
        position_ids: Tensor | None = None,
        freqs: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> Tensor:
        require_dtype("RoPE", FLOATS, input=input, cos=cos, sin=sin, freqs=freqs)
        if input.dim() < 3:
            raise ValueError(
                f"RoPE: input is {shape_text(input.shape)}, expected [batch, ..., seq, embed]"
            )
        if (cos is None) != (sin is None):
            raise ValueError("RoPE: only one of cos and sin was given; pass both or neither")
        width = self._rotated_width(input.shape[-1])
        if cos is None or sin is None:
            angles = self._angles(input, width // 2, position_ids, freqs, offset)
            cos, sin = angles.cos(), angles.sin()
        if self._use_hf_impl:
            cos, sin = cos.to(input.dtype), sin.to(input.dtype)
        cos_first, cos_second = self._table("cos", cos, input, width)
        sin_first, sin_second = self._table("sin", sin, input, width)
        rotates_all = width == input.shape[-1]
        first, second = self._pairs(input if rotates_all else input[..., :width])
        rotated = self._join(
            first * cos_first - second * sin_first, second * cos_second + first * sin_second
        ).to(input.dtype)
        return rotated if rotates_all else torch.cat((rotated, input[..., width:]), -1)

    def extra_repr(self) -> str:
        return (
            f"scale={self.scale}, base={self.base}, dims={self.dims}, "
            f"interleaved={self.interleaved}"
        )

    def _rotated_width(self, embed: int) -> int:
        width = embed if self.dims is None or self.dims >= embed else self.dims
        if width % 2:
            raise ValueError(f"RoPE: cannot pair all {embed} features; pass an even dims")
        return width

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        half = x.shape[-1] // 2
        if self.interleaved:
            neighbours = x.unflatten(-1, (half, 2))
            return neighbours[..., 0], neighbours[..., 1]
        return x[..., :half], x[..., half:]

    def _join(self, first: Tensor, second: Tensor) -> Tensor:
        if self.interleaved:
            return torch.stack((first, second), -1).flatten(-2)
        return torch.cat((first, second), -1)

    def _table(self, name: str, table: Tensor, input: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return the cosines or sines of the first and of the second element of each pair."""
        given = table.shape
        if given[-1] not in (width, width // 2):
            allowed = f"{width // 2} or {width}"
            raise ValueError(
                f"RoPE: {name} is {shape_text(given)}, its last size must be {allowed}"
            )
        if 2 < table.dim() < input.dim():
            # The first axis is the batch: insert axes so that [batch, seq, width] broadcasts with
            # [batch, heads, seq, embed].
            inserted = [1] * (input.dim() - table.dim())
            table = table.reshape(given[0], *inserted, *given[1:])
        require_expandable("RoPE", name, table.shape, (*input.shape[:-1], table.shape[-1]))
        return self._pairs(table) if given[-1] == width else (table, table)

    def _angles(
        self,
        input: Tensor,
        half: int,
        position_ids: Tensor | None,
        freqs: Tensor | None,
        offset: Tensor | None,
    ) -> Tensor:
        if freqs is None:
            index = torch.arange(half, dtype=torch.float32, device=input.device)
            freqs = 1.0 / self.base ** (index / half)
        else:
            bind_axes("RoPE", "freqs", freqs, "embed/2", {"embed/2": half})
        return self._positions(input, position_ids, offset).unsqueeze(-1) * freqs.float()

    def _positions(
        self, input: Tensor, position_ids: Tensor | None, offset: Tensor | None
    ) -> Tensor:
        batch, seq = input.shape[0], input.shape[-2]
        if position_ids is not None:
            shared = position_ids.dim() < 2 or position_ids.shape[0] == 1
            axes = "seq" if position_ids.dim() < 2 else "batch seq"
            sizes = {"batch": 1 if shared else batch, "seq": seq}
            bind_axes("RoPE", "position_ids", position_ids, axes, sizes)
            return position_ids.float()
        positions = torch.arange(seq, dtype=torch.float32, device=input.device)
        if offset is not None:
            require_expandable("RoPE", "offset", offset.shape, (batch, 1)[: offset.dim()])
            positions = offset.float().reshape(-1, 1) + positions
        return positions if self.scale == 1.0 else positions * self.scale


def rope(
    input: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    freqs: Tensor | None = None,
    offset: Tensor | None = None,
    scale: float = 1.0,
    base: float = 1e4,
    dims: int | None = None,
    interleaved: bool = False,
) -> Tensor:
    """Rotate pairs of features as a function; see `RoPE` for the arguments."""
    rotate = RoPE(scale, base, dims, interleaved)
    return rotate(input, cos, sin, position_ids, freqs, offset)
