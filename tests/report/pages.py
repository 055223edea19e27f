"""Programs for pages: a large one, and one with hostile names."""

from __future__ import annotations

from dataclasses import replace

from coreai_torch.asset.reading import Block, Function, Op, Place, Port, Program, Type
from coreai_torch.debugging.benchmarker import BenchmarkResult, OperationTiming
from coreai_torch.numerics.output_error import OutputError
from coreai_torch.verification.verdict import Divergence, Trial, Verdict

F32 = Type("tensor", (1, 16), "f32")
WEIGHT = Type("tensor", (16, 16), "f32")
SOURCE = "/models/net.py"

# Ends of scripts, comments and attributes; characters that HTML, JSON and JavaScript treat
# differently; a right-to-left override, a NUL, and marks of the page's template.
HOSTILE = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror='window.pwned=2'>",
    "--><!--body--><!--data--><svg/onload=window.pwned=3>",
    "\"'`${window.pwned=4}&lt;",
    "a\u2028b\u2029c\x00d\u202egnp.exe\ud800",
    "javascript:window.pwned=5",
)
EVERY = " ".join(HOSTILE)


def op(name, operands=(), results=(), types=(), place=None, attributes=None, regions=()):
    given = tuple(F32 for _ in operands)
    place = Place() if place is None else place
    return Op(f"coreai.{name}", operands, results, types, given, attributes or {}, regions, place)


def function(name, ops, *, inputs=("x",), outputs=("y",), is_private=False, composite=""):
    last = max((r for o in ops for r in o.results), default=0)
    body = Block(
        tuple(range(len(inputs))),
        tuple(F32 for _ in inputs),
        (*ops, op("output", operands=(last,))),
    )
    taken, given = ((tuple(Port(n, F32) for n in ports)) for ports in (inputs, outputs))
    return Function(name, taken, given, body, last + 1, is_private, composite)


def program(*functions):
    return Program({f.name: f for f in functions})


def flat(count):
    """Return a model without places, as after `coreai-torch strip`."""
    return program(
        function("main", [op("sin", (n,), (n + 1,), (F32,)) for n in range(count)]),
    )


def layered(layers, ops_each):
    """Return a deep model: each layer has a weight, a product and more ops, one a composite."""
    norm = function("norm", [op("sqrt", (0,), (1,), (F32,))], is_private=True, composite="norm")
    ops, value = [], 0
    for layer in range(layers):
        module = f"encoder.layer.{layer}.dense"
        place = Place(module, SOURCE, layer + 1, f"linear_{layer}", "aten.linear.default")
        ops.append(op("constant", (), (value + 1,), (WEIGHT,), place))
        product = op("batch_matmul", (value, value + 1), (value + 2,), (F32,), place)
        ops.append(replace(product, operand_types=(F32, WEIGHT)))
        value += 2
        inner = Place(f"encoder.layer.{layer}", SOURCE, 900, f"sin_{layer}", "aten.sin.default")
        for number in range(ops_each - 1):
            attributes = {"callee": "norm"} if number == 0 else {"step": number}
            name = "invoke" if number == 0 else "sin"
            ops.append(op(name, (value,), (value + 1,), (F32,), inner, attributes))
            value += 1
    return program(function("main", ops), norm)


def attacked():
    """Return a program with hostile text in every name."""
    place = Place(EVERY.replace(".", "_"), EVERY, 3, EVERY, EVERY)
    kernel = {"kernel_name": EVERY, "source": EVERY}
    body = [
        op("constant", (), (1,), (WEIGHT,), place),
        op("invoke", (0, 1), (2,), (F32,), place, {"callee": EVERY}),
        op("metal4_kernel", (2,), (3,), (F32,), place, kernel),
    ]
    inner = function(EVERY, [op("sqrt", (0,), (1,), (F32,), place)], is_private=True)
    inner = Function(**{**vars(inner), "composite": EVERY})
    return program(function("main", body, inputs=(EVERY,), outputs=(EVERY,)), inner)


def failed_verdict():
    error = OutputError(EVERY, EVERY, (1, 16), ok=False, tolerance=1e-5, max_abs=0.5, max_rel=0.1)
    trial = Trial(EVERY, optimized=True, step=0, outputs=(error,), problem=EVERY)
    divergence = Divergence(EVERY, EVERY, EVERY, EVERY, error, alone=True, trial=EVERY)
    rest = {"left_out": (EVERY,), "notes": (EVERY,), "ports": (EVERY,), "kernels": (EVERY,)}
    return Verdict("main", (trial,), divergence=divergence, **rest)


def passed_verdict():
    error = OutputError("y", "float32", (1, 16), ok=True, tolerance=1e-5, max_abs=1e-7)
    trials = (Trial("given", optimized=False, step=0, outputs=(error,)),)
    return Verdict("main", trials)


def timing(read):
    """Return a profile with a millisecond for each op that is not a constant."""
    rows, number = [], 0
    for each in read.functions.values():
        for inner in each.body.ops:
            if inner.name not in ("coreai.constant", "coreai.output", "coreai.invoke"):
                rows.append(OperationTiming(number, inner.name, inner.place.module, 1.0, 1))
            number += 1
    return BenchmarkResult((0.01, 0.02, 0.03), tuple(rows))
