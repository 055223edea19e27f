"""Random ops are written with three of them, whose numbers are inputs or those of a seed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from coreai_torch import convert
from coreai_torch.capture.prepare import prepare
from coreai_torch.capture.random_draws import Draw, Randomness, generator
from coreai_torch.capture.random_draws.replay import Replay
from coreai_torch.converter import TorchConverter, capture_rules
from coreai_torch.errors import ArgumentTypeError, ConversionError, UnsupportedOpError

X = torch.tensor([[0.25, 0.5, 0.125, 0.125], [0.0, 0.5, 0.25, 0.25]])


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def captured(function, randomness, x=X, **options):
    rules = capture_rules(TorchConverter())
    return prepare(Function(function), (x,), rules=rules, randomness=randomness, **options)


DRAWS = {
    "rand": lambda x: torch.rand(3, 4),
    "randn": lambda x: torch.randn(2),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint": lambda x: torch.randint(7, (3,)),
    "randint, low": lambda x: torch.randint(-2, 7, (3,)),
    "randint_like": lambda x: torch.randint_like(x, 7),
    "randint_like, low": lambda x: torch.randint_like(x, 2, 7),
    "normal of tensors": lambda x: torch.normal(x, x),
    "normal of a mean": lambda x: torch.normal(x, 2.0),
    "normal of a deviation": lambda x: torch.normal(1.0, x),
    "normal of a size": lambda x: torch.normal(1.0, 2.0, (3, 4)),
    "normal_": lambda x: x.clone().normal_(1, 2),
    "uniform_": lambda x: x.clone().uniform_(1, 2),
    "bernoulli": torch.bernoulli,
    "bernoulli of a number": lambda x: torch.bernoulli(x, 0.3),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.2),
    "bernoulli_ of a tensor": lambda x: x.clone().bernoulli_(x),
    "multinomial": lambda x: torch.multinomial(x, 2),
    "multinomial with replacement": lambda x: torch.multinomial(x, 5, True),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "geometric_": lambda x: x.clone().geometric_(0.2),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "random_": lambda x: x.clone().random_(),
    "random_ to": lambda x: x.clone().random_(5),
    "randperm": lambda x: torch.randperm(5),
    "dropout": lambda x: torch.dropout(x, 0.2, True),
    "alpha_dropout": lambda x: torch.alpha_dropout(x, 0.2, True),
    "feature_dropout": lambda x: torch.feature_dropout(x[None], 0.2, True),
    "rrelu": lambda x: nn.functional.rrelu(x - 0.5, training=True),
    "gumbel_softmax": nn.functional.gumbel_softmax,
    "fractional_max_pool2d": lambda x: nn.functional.fractional_max_pool2d(x[None], 2, (1, 2)),
    "attention with dropout": lambda x: nn.functional.scaled_dot_product_attention(
        x[None], x[None], x[None], dropout_p=0.2
    ),
    "masked attention with dropout": lambda x: nn.functional.scaled_dot_product_attention(
        x[None], x[None], x[None], attn_mask=x[:, :2] > 0.2, dropout_p=0.2
    ),
    "a normal distribution": lambda x: torch.distributions.Normal(x, 1.0).rsample(),
    "a categorical distribution": lambda x: torch.distributions.Categorical(x).sample(),
}


@pytest.mark.parametrize("randomness", list(Randomness))
@pytest.mark.parametrize("name", DRAWS)
def test_torch_and_the_program_agree_on_the_same_numbers(name, randomness):
    found = captured(DRAWS[name], randomness)
    assert isinstance(found.reference, Replay)
    args, kwargs = found.program.example_inputs
    assert kwargs.keys() == set(found.reference._names)
    want = found.reference(*args, **kwargs)
    torch.testing.assert_close(found.program.module()(*args, **kwargs), want)
    if randomness is Randomness.SEED:
        other = found.reference(*args, seed=torch.tensor([77], dtype=torch.int32))
        assert other.shape == want.shape
        assert other.dtype == want.dtype


def test_distributions_of_the_ops():
    """Means and deviations of 40,000 numbers for each op, with a seed."""
    n = 40_000
    want = {
        "normal_": (1, 2),
        "uniform_": (1.5, math.sqrt(1 / 12)),
        "exponential_": (0.5, 0.5),
        "geometric_": (5, math.sqrt(0.8) / 0.2),
        "log_normal_": (math.exp(3), math.exp(3) * math.sqrt(math.exp(4) - 1)),
        "random_ to": (2, math.sqrt(2)),
        "bernoulli of a number": (0.3, math.sqrt(0.21)),
        "dropout": (1.0, 0.5),
    }
    for name, (mean, deviation) in want.items():
        found = captured(DRAWS[name], Randomness.SEED, torch.ones(n))
        values = found.reference(torch.ones(n), seed=torch.tensor([3], dtype=torch.int32))
        if name == "log_normal_":  # its variance is too large for its mean to be tested
            values, mean, deviation = values.log(), 1, 2
        assert abs(values.double().mean() - mean) < 5 * deviation / math.sqrt(n), name
        assert abs(values.double().std() - deviation) < 0.05 * deviation, name


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_follows_the_weights(replacement):
    weights = torch.tensor([0.0, 1.0, 5.0, 4.0, 0.0]).expand(20_000, 5)
    found = captured(
        lambda x: torch.multinomial(x, 2, replacement), Randomness.SEED, weights.clone()
    )
    drawn = found.reference(weights, seed=torch.tensor([1], dtype=torch.int32))
    first = torch.bincount(drawn[:, 0], minlength=5) / 20_000
    torch.testing.assert_close(first, torch.tensor([0, 0.1, 0.5, 0.4, 0]), atol=0.02, rtol=0)
    assert (drawn[:, 0] == drawn[:, 1]).any() == replacement


def test_randperm_permutes():
    found = captured(lambda x: torch.randperm(100), Randomness.SEED)
    drawn = found.reference(X, seed=torch.tensor([5], dtype=torch.int32))
    assert drawn.sort().values.equal(torch.arange(100))
    assert not drawn.equal(torch.arange(100))


def uniforms(seed, count=200_000, start=0, stream=0, dtype=torch.float32):
    draw = Draw("uniform", dtype, start=start, stream=stream)
    return generator.sample(torch.tensor([seed], dtype=torch.int32), draw, [count]).double()


def test_uniform_numbers_pass_the_test_of_kolmogorov():
    for seed in (0, 1, -1, 2**31 - 1, -(2**31)):
        values = uniforms(seed).sort().values
        steps = torch.arange(len(values)) / len(values)
        assert (values - steps).abs().max() * math.sqrt(len(values)) < 2  # 1 in 1,500


@pytest.mark.parametrize("lag", [1, 2, 3, 64, generator.PRIME])
def test_neighbors_are_not_correlated(lag):
    values = uniforms(12) - 0.5
    one, other = values[lag:], values[:-lag]
    assert abs((one * other).mean()) * 12 * math.sqrt(len(one)) < 4.5


@pytest.mark.parametrize("step", [1, 2, 3, generator.PRIME])
def test_seeds_and_streams_are_independent(step):
    """Pairs fill a grid of 64 x 64 evenly, by the chi-square test."""
    for pair in (
        (uniforms(40), uniforms(40 + step)),
        (uniforms(40), uniforms(40, start=step)),
        (uniforms(40, stream=1), uniforms(40, stream=1 + step % 1000)),
    ):
        cells = sum((64 * one).long() * 64**place for place, one in enumerate(pair))
        counts = torch.bincount(cells, minlength=4096).double()
        chi = ((counts - counts.mean()) ** 2).sum() / counts.mean()
        assert abs(chi - 4095) / math.sqrt(2 * 4095) < 5


def test_normal_numbers_have_the_right_moments():
    draw = Draw("normal", torch.float32)
    values = generator.sample(torch.tensor([9], dtype=torch.int32), draw, [400_000]).double()
    moments = [float((values**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.04)
    assert values.isfinite().all()
    assert 4 < values.abs().max() < 7


def test_integers_cover_their_range_evenly():
    draw = Draw("integers", torch.int64, low=-3, high=4)
    values = generator.sample(torch.tensor([2], dtype=torch.int32), draw, [70_000])
    counts = torch.bincount(values + 3)
    assert len(counts) == 7
    assert (counts - 10_000).abs().max() < 500


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_one_is_not_drawn(dtype):
    assert uniforms(4, 2_000_000, dtype=dtype).max() < 1
    assert Draw("uniform", dtype).sample([1_000_000], torch.Generator()).max() < 1


def test_no_number_of_the_generator_exceeds_31_bits():
    most = generator.PRIME - 1
    assert (2 * most) ** 2 + most < 2**31
    assert most * generator.PRIME + most < 2**31


def test_equal_seeds_draw_equal_numbers_and_others_do_not():
    assert uniforms(7).equal(uniforms(7))
    assert (uniforms(7) == uniforms(8)).float().mean() < 0.01


def test_a_model_in_another_order_is_compared_with_the_program():
    """Eager draws noise whose scale of 0 the export removes."""
    found = captured(lambda x: torch.rand_like(x) * 0.0 + torch.randn_like(x), Randomness.INPUT)
    assert not isinstance(found.reference, Replay)
    args, kwargs = found.program.example_inputs
    assert found.reference(*args, **kwargs).equal(kwargs["randn"])


def test_decomposed_programs_are_accepted():
    exported = torch.export.export(Function(torch.bernoulli), (X,))
    for program in (exported, exported.run_decompositions()):
        rules = capture_rules(TorchConverter())
        found = prepare(program, rules=rules, randomness=Randomness.INPUT)
        assert [port.name for port in found.plan.inputs][1:] == ["rand"]


def test_draws_in_a_branch_are_rejected():
    def branch(x):
        return torch.cond(x.sum() > 0, lambda a: a + torch.rand_like(a), lambda a: a * 2, (x,))

    with pytest.raises(ConversionError, match="in a branch or the body of a loop"):
        captured(branch, Randomness.SEED)


def test_sizes_that_follow_from_values_need_a_seed():
    def masked(x):
        return torch.rand_like(x[x > 0.2])

    with pytest.raises(ConversionError, match=r'follows from values(.|\n)*random="seed"'):
        captured(masked, Randomness.INPUT)
    program = convert(Function(masked), (X,), random="seed")
    assert program.verdict.ok


def test_ranges_beyond_the_generator_are_rejected():
    def wide(x):
        return torch.randint(2**30, (3,))

    with pytest.raises(ConversionError, match=r'more than a seed makes(.|\n)*random="input"'):
        captured(wide, Randomness.SEED)


def test_ops_without_a_rule_are_rejected():
    with pytest.raises(UnsupportedOpError, match=r"poisson(.|\n)*cannot draw them"):
        convert(Function(torch.poisson), (X,), random="seed")


def test_the_argument_is_checked():
    with pytest.raises(ArgumentTypeError, match=r"random is 'seeds'(.|\n)*'input'"):
        convert(Function(torch.poisson), (X,), random="seeds")
