"""Random arithmetic on inputs and constants of extreme magnitude, one step after another."""

from __future__ import annotations

from dataclasses import dataclass

import torch

SIZE = 8
LONGEST = 6
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)

# Ratio of the sizes of two addends that may be joined; `coreai_torch.ir.reassociation` states why.
JOINED = 4.0


@dataclass(frozen=True)
class Step:
    """One operation: `value op operand`, or `operand op value` if `swapped`."""

    op: str
    operand: object = None
    swapped: bool = False

    def __str__(self):
        operand = self.operand
        if isinstance(operand, torch.Tensor):
            operand = f"tensor({operand.tolist()}, {operand.dtype})"
        if operand is None:
            return f".{self.op}"
        return f"{operand} {self.op} _" if self.swapped else f"_ {self.op} {operand}"


@dataclass(frozen=True)
class Expression:
    """Steps that start from the first input."""

    steps: tuple[Step, ...]

    def __call__(self, x, y):
        value = x
        for step in self.steps:
            value = apply(step, value, y)
        return value

    def __str__(self):
        return "x, " + ", ".join(map(str, self.steps))


def apply(step, value, y):
    if step.op == "neg":
        return -value
    if step.op == "reshape twice":
        return value.view(-1, 2).view(value.shape)
    if step.op == "transpose twice":
        return value.unsqueeze(0).permute(1, 0).permute(1, 0).squeeze(0)
    if step.op == "widen":
        return value.float().to(value.dtype)
    operand = y if isinstance(step.operand, str) else step.operand
    left, right = (operand, value) if step.swapped else (value, operand)
    if step.op == "+":
        return left + right
    if step.op == "-":
        return left - right
    if step.op == "*":
        return left * right
    if value.is_floating_point():
        return left / right
    return torch.div(left, right, rounding_mode="floor" if step.op == "//" else "trunc")


def numbers(dtype):
    """Return constants that the dtype represents: ordinary, extreme, and zeros with signs."""
    if dtype == torch.int64:  # which is narrowed, so no result may exceed 32 bits
        return [1, 2, 3, 5, 7, 9]
    if dtype == torch.int32:
        return [1, 2, 3, 5, 7, 60, 1000, 2**15, 2**16 + 1, 2**30, 2**31 - 1]
    info = torch.finfo(dtype)
    steep = [info.max, info.max / 3, info.max**0.5, info.tiny, info.tiny * 5, info.tiny**0.5]
    close = [1.0, 1.0 + info.eps, 1.0 - info.eps / 2, 1 / info.eps, 3 / info.eps, info.eps / 3]
    plain = [0.0, -0.0, 0.5, 2.0, 3.0, 7.0, 10.0, 60.0, 0.1, 1 / 3, 1e3, 4e4, 1e-3]
    every = torch.tensor([*steep, *close, *plain], dtype=torch.float64).to(dtype)
    return every[every.isfinite()].tolist()


def constants(dtype):
    """Return a strategy of Python numbers and of tensors that broadcast."""
    from hypothesis import strategies as st

    signs = st.sampled_from([1, -1])
    one = st.builds(lambda number, sign: number * sign, st.sampled_from(numbers(dtype)), signs)
    several = st.lists(one, min_size=SIZE, max_size=SIZE)
    scalar = st.builds(lambda n: torch.tensor(n, dtype=dtype), one)
    single = st.builds(lambda n: torch.tensor([n], dtype=dtype), one)
    row = st.builds(lambda n: torch.tensor(n, dtype=dtype), several)
    return st.one_of(one, one, one, scalar, single, row)


def expressions(dtype):
    """Return a strategy of expressions."""
    from hypothesis import strategies as st

    return st.composite(_draw_expression)(dtype)


def _draw_expression(draw, dtype):
    """Draw one expression. A dividend of integers comes first, over an input without zeros."""
    from hypothesis import strategies as st

    integer = not dtype.is_floating_point
    constant = constants(dtype)
    ops = ["+", "-", "*", "/"] + ["//"] * integer
    moves = ["neg", "reshape twice", "transpose twice"] + ["widen"] * (dtype == torch.float16)
    steps = []
    for place in range(draw(st.integers(2, LONGEST))):
        choice = draw(st.integers(0, 9))
        if choice == 0:
            steps.append(Step(draw(st.sampled_from(moves))))
        elif choice == 1:
            steps.append(Step(draw(st.sampled_from(ops)), "y", not integer and draw(st.booleans())))
        else:
            op = draw(st.sampled_from(ops))
            swapped = draw(st.booleans()) and (op in "+-*" or not integer or place == 0)
            operand = draw(constant)
            if integer and op in ("/", "//") and not swapped:
                operand = abs(operand)  # the smallest integer over -1 overflows
            steps.append(Step(op, operand, swapped))
    return Expression(tuple(steps))


def inputs(dtype):
    if not dtype.is_floating_point:
        x = torch.tensor([1, -1, 2, -3, 7, -8, 100, 11], dtype=dtype)
        return x, torch.tensor([3, 2, 5, 1, 7, 2, 1, 9], dtype=dtype)
    info = torch.finfo(dtype)
    x = [0.0, -0.0, 1.25, -7.5, info.max / 2, -info.tiny * 3, -1 / info.eps, 3e-3]
    y = [1.5, -2.0, 0.75, 100.0, -1e-2, 3.0, 1 / info.eps, -1.0]
    return torch.tensor(x).to(dtype), torch.tensor(y).to(dtype)


def allowed_error(expression, x, y):
    """Return how far each element may be from eager: 0 where no two addends may be joined.

    A join adds the rounding errors of the sum of the addends and of the result; later steps
    propagate them to first order, doubled.
    """
    unit = torch.finfo(x.dtype).eps
    least = torch.finfo(x.dtype).smallest_normal * unit
    value, error, addend = x, torch.zeros(x.shape, dtype=torch.float64), None
    for step in expression.steps:
        before, value = value.double(), apply(step, value, y)
        if step.operand is None:  # a negation turns the sum into a product
            addend = None if step.op == "neg" else addend
            continue
        operand = torch.as_tensor(y if isinstance(step.operand, str) else step.operand).double()
        error = _propagated(step, error, before, operand)
        joined = torch.zeros(())
        if step.op in "+-" and not isinstance(step.operand, str):
            first, addend = addend, -operand if step.op == "-" and not step.swapped else operand
            if first is not None:
                first = -first if step.op == "-" and step.swapped else first
                joined = _joined_size(first, addend, x.dtype)
        else:
            addend = None
        inexact = (error > 0) | (joined > 0)
        error = error + torch.where(inexact, 2 * unit * (value.double().abs() + joined) + least, 0)
    return error


def _joined_size(a, b, dtype):
    """Return the size of the numbers rounded where two addends may be joined, and 0 elsewhere."""
    total = a + b
    exact = (total - a == b) & (total - b == a) & (total.to(dtype) == total)
    near = total.abs() <= JOINED * b.abs()
    may_join = (exact | near) & (b.abs() <= JOINED * total.abs())
    return torch.where(may_join, torch.minimum(total.abs(), JOINED * b.abs()), 0.0)


def _propagated(step, error, value, operand):
    if step.op in "+-":
        return error + torch.zeros_like(operand)
    if step.op == "*":
        return torch.where(error > 0, 2 * error * operand.abs(), 0.0)
    slope = (operand / value**2 if step.swapped else 1 / operand).abs()
    return torch.where(error > 0, 2 * error * slope, 0.0)
