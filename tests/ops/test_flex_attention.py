"""Compare `flex_attention` with eager torch."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from coreai_torch import convert

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


class Attention(torch.nn.Module):
    """Attention with a function of the scores, or a mask, or options."""

    def __init__(self, score_mod=None, mask_mod=None, sizes=None, **options):
        super().__init__()
        self.score_mod, self.options = score_mod, options
        self.mask = create_block_mask(mask_mod, *sizes, device="cpu") if mask_mod else None

    def forward(self, q, k, v):
        return flex_attention(
            q, k, v, score_mod=self.score_mod, block_mask=self.mask, **self.options
        )


def made(heads=4, keys=4, length=24, other=24, width=16, dtype=torch.float32):
    torch.manual_seed(0)
    sizes = (heads, length, width), (keys, other, width), (keys, other, 8)
    return tuple(torch.randn(2, *size).to(dtype) for size in sizes)


def check(model, *variants, limit=1e-5, **options):
    torch._dynamo.reset()
    program = convert(model.eval(), variants[0], verify=False, **options)
    program = getattr(program, "program", program)
    names = runtime.descriptor(program).input_names
    for inputs in variants:
        with torch.no_grad():
            wanted = model(*inputs)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        got = runtime.run(program, dict(zip(names, inputs, strict=True))).values()
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=limit, atol=limit)


DOCUMENT = torch.arange(24) // 7
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])


def capped(score, b, h, q, k):
    return 5 * torch.tanh(score / 5)


def biased(score, b, h, q, k):
    return score - SLOPES[h] * (q - k) + b


def masked(score, b, h, q, k):
    return torch.where((q >= k) & (DOCUMENT[q] == DOCUMENT[k]), score, -float("inf"))


def late(score, b, h, q, k):
    """Hide all keys from the first queries."""
    return torch.where(q >= k + 3, score, -float("inf"))


@pytest.mark.parametrize("score_mod", [None, capped, biased, masked, late])
def test_function_of_the_scores(score_mod):
    check(Attention(score_mod), made())


def test_more_queries_than_keys_and_shared_heads():
    check(Attention(biased, enable_gqa=True, scale=0.3), made(keys=2, length=24, other=17))


def test_mask_of_blocks_hides_positions_inside_of_a_block():
    def window(b, h, q, k):
        return (q >= k) & (q - k < 5) & (DOCUMENT[q] == DOCUMENT[k])

    check(Attention(capped, window, (None, None, 24, 24)), made())


def test_mask_that_ignores_batch_and_heads_is_stored_once():
    def causal(b, h, q, k):
        return q >= k

    torch._dynamo.reset()
    model = Attention(None, causal, (None, None, 24, 24)).eval()
    program = convert(model, made(), verify=False)
    text = str(getattr(program, "program", program))
    assert "tensor<1x1x24x24xi1>" in text
    assert "tensor<2x4x24x24xi1>" not in text


def test_verification_allows_the_rounding_of_attention():
    torch._dynamo.reset()
    assert convert(Attention(masked).eval(), made()).verdict.ok


def test_logsumexp_of_the_scores():
    check(Attention(late, return_lse=True), made())


def test_half_precision_sums_scores_in_float32():
    check(Attention(biased), made(dtype=torch.float16), limit=2e-3)


def test_dynamic_lengths():
    length = torch.export.Dim("length", min=4, max=64)
    shapes = ({2: length}, {2: length}, {2: length})

    def causal(score, b, h, q, k):
        return torch.where(q >= k, score - 0.1 * (q - k), -float("inf"))

    check(
        Attention(causal),
        made(length=12, other=12),
        made(length=37, other=37),
        dynamic_shapes=shapes,
    )
