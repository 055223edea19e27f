"""Write random ops with `torch.rand`, `torch.randn` and `torch.randint`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...torch_compat import MissingOverload, OpOverload, aten

# What the other ops are written with.
UNIFORM, NORMAL, INTEGERS = aten.rand.default, aten.randn.default, aten.randint.low
KINDS: Mapping[Any, str] = {UNIFORM: "uniform", NORMAL: "normal", INTEGERS: "integers"}


def _comparable(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype.is_floating_point else torch.float32


def _uniform(x: Tensor) -> Tensor:
    return torch.rand(x.shape, dtype=_comparable(x))


def _exponential(x: Tensor) -> Tensor:
    return -torch.log1p(-_uniform(x))


def rand_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return torch.rand(x.shape, dtype=dtype or x.dtype)


def randn_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return torch.randn(x.shape, dtype=dtype or x.dtype)


def randint(high: int, size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.randint(0, high, size, dtype=dtype or torch.int64)


def randint_like(x: Tensor, high: int, *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.randint(0, high, x.shape, dtype=dtype or x.dtype)


def randint_like_low(x: Tensor, low: int, high: int, *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.randint(low, high, x.shape, dtype=dtype or x.dtype)


def normal(mean: Any, std: Any, generator: None = None) -> Tensor:
    parts = [part for part in (mean, std) if isinstance(part, Tensor)]
    shape = torch.broadcast_shapes(*(part.shape for part in parts))
    return mean + std * torch.randn(shape, dtype=parts[0].dtype)


def normal_of_size(
    mean: float, std: float, size: Sequence[Any], *, dtype: Any = None, **_: Any
) -> Tensor:
    return mean + std * torch.randn(size, dtype=dtype or torch.get_default_dtype())


def normal_in(x: Tensor, mean: float = 0, std: float = 1, generator: None = None) -> Tensor:
    return mean + std * torch.randn(x.shape, dtype=x.dtype)


def uniform_in(x: Tensor, low: float = 0, high: float = 1, generator: None = None) -> Tensor:
    return low + (high - low) * torch.rand(x.shape, dtype=x.dtype)


def bernoulli(x: Tensor, generator: None = None) -> Tensor:
    return (_uniform(x) < x).to(x.dtype)


def bernoulli_of(x: Tensor, p: float | Tensor = 0.5, generator: None = None) -> Tensor:
    return (_uniform(x) < p).to(x.dtype)


def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, generator: None = None
) -> Tensor:
    if replacement:
        total = x.cumsum(-1)
        below = 1 - 2 * torch.finfo(x.dtype).eps  # the product must not round to the whole total
        drawn = torch.rand([*x.shape[:-1], num_samples], dtype=x.dtype) * (total[..., -1:] * below)
        return (total.unsqueeze(-2) <= drawn.unsqueeze(-1)).sum(-1)
    race = torch.where(x > 0, -_exponential(x) / x, -torch.inf)  # the first to arrive
    return race.topk(num_samples).indices


def exponential(x: Tensor, lambd: float = 1, generator: None = None) -> Tensor:
    return _exponential(x) / lambd


def geometric(x: Tensor, p: float, generator: None = None) -> Tensor:
    return (torch.floor(_exponential(x) / -math.log1p(-p)) + 1).to(x.dtype)


def cauchy(x: Tensor, median: float = 0, sigma: float = 1, generator: None = None) -> Tensor:
    return median + sigma * torch.tan(math.pi * (_uniform(x) - 0.5))


def log_normal(x: Tensor, mean: float = 1, std: float = 2, generator: None = None) -> Tensor:
    return torch.exp(normal_in(x, mean, std))


def random_to(x: Tensor, to: int, generator: None = None) -> Tensor:
    return torch.randint(0, to, x.shape, dtype=x.dtype)


def random_in(x: Tensor, generator: None = None) -> Tensor:
    """Draw all integers that the dtype can express."""
    if not x.dtype.is_floating_point or x.dtype.itemsize > 4:
        return NotImplemented
    return torch.randint(0, int(2 / torch.finfo(x.dtype).eps) + 1, x.shape, dtype=x.dtype)


def randperm(n: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.rand([n]).argsort().to(dtype or torch.int64)


def native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = _uniform(x) < 1 - p
    return x * (kept.to(x.dtype) / (1 - p)), kept


def rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> Any:
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise
    slopes = torch.where(x <= 0, uniform_in(x, lower, upper), 1.0)
    return x * slopes, slopes


def rrelu_in(x: Tensor, noise: Tensor, *options: Any) -> Tensor:
    made, slopes = rrelu(x, noise, *options)
    noise.copy_(slopes)
    return made


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p == 0:
        return NotImplemented
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.mT) * factor
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return native_dropout(scores.softmax(-1), dropout_p, True)[0] @ value


_FUNCTIONAL: Mapping[Any, Callable[..., Any]] = {
    aten.bernoulli.Tensor: bernoulli_of,
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli_of,
    aten.cauchy.default: cauchy,
    aten.exponential.default: exponential,
    aten.geometric.default: geometric,
    aten.log_normal.default: log_normal,
    aten.multinomial.default: multinomial,
    aten.native_dropout.default: native_dropout,
    aten.normal.Tensor_Tensor: normal,
    aten.normal.Tensor_float: normal,
    aten.normal.float_Tensor: normal,
    aten.normal.float_float: normal_of_size,
    aten.normal_functional.default: normal_in,
    aten.rand_like.default: rand_like,
    aten.randint.default: randint,
    aten.randint_like.default: randint_like,
    aten.randint_like.low_dtype: randint_like_low,
    aten.randn_like.default: randn_like,
    aten.random.default: random_in,
    aten.random.to: random_to,
    aten.randperm.default: randperm,
    aten.rrelu_with_noise.default: rrelu_in,
    aten.rrelu_with_noise_functional.default: rrelu,
    aten.scaled_dot_product_attention.default: attention,
    aten.uniform.default: uniform_in,
}
# What eager calls on a tensor instead; the first argument is written.
_IN_PLACE: Mapping[Any, Callable[..., Any]] = {
    aten.bernoulli_.Tensor: bernoulli_of,
    aten.bernoulli_.float: bernoulli_of,
    aten.cauchy_.default: cauchy,
    aten.exponential_.default: exponential,
    aten.geometric_.default: geometric,
    aten.log_normal_.default: log_normal,
    aten.normal_.default: normal_in,
    aten.random_.default: random_in,
    aten.random_.to: random_to,
    aten.uniform_.default: uniform_in,
}
RANDOM_OPS = frozenset({*KINDS, *_FUNCTIONAL} - {aten.scaled_dot_product_attention.default})


def _existing(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Leave out the overloads that the installed torch does not have."""
    return {op: fn for op, fn in table.items() if not isinstance(op, MissingOverload)}


@functools.cache
def decompositions() -> Mapping[OpOverload, Callable[..., Any]]:
    """Return the functions that write random ops with the three base ops."""
    return _existing(_FUNCTIONAL)


@functools.cache
def in_place() -> Mapping[OpOverload, Callable[..., Any]]:
    """Return the functions whose result eager writes to the first argument."""
    return _existing(_IN_PLACE)
