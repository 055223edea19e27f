"""Check the dialect vocabulary: documentation, examples, and numbers in place of tensors."""

from __future__ import annotations

import doctest
import inspect
import re

import numpy as np
import pytest
import torch

import coreai_torch
from coreai_torch.errors import ArgumentTypeError, ConversionError
from coreai_torch.interpreter import evaluate
from coreai_torch.ir import dialect

FUNCTIONS = {
    name: thing for name in dialect.__all__ if inspect.isfunction(thing := getattr(dialect, name))
}
TENSORS = [
    (name, parameter.name, str(parameter.annotation))
    for name, function in FUNCTIONS.items()
    for parameter in inspect.signature(function).parameters.values()
    if re.match(r"Value|Operand|Sequence\[Value\]", str(parameter.annotation))
]
ONLY_TENSORS = [(name, p) for name, p, kind in TENSORS if not kind.startswith("Operand")]
NUMBERS = [(name, p) for name, p, kind in TENSORS if kind.startswith("Operand")]
INTEGERS = [
    (name, parameter.name)
    for name, function in FUNCTIONS.items()
    for parameter in inspect.signature(function).parameters.values()
    if re.search(r"\bint\b|Dim|Counts", str(parameter.annotation))
]
BOOLEANS = {"logical_and", "logical_or", "logical_xor"}
ALIASES = ["abs", "all", "any", "pow", "range", "round", "slice"]


def test_the_whole_vocabulary_is_found():
    assert len(FUNCTIONS) > 100
    assert {"add", "abs_", "conv", "scatter_nd", "where"} <= FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_has_all_parts(name):
    function = FUNCTIONS[name]
    doc = inspect.getdoc(function) or ""
    summary, arguments = doc.split("\n\n")[0], _section(doc, "Args")
    assert summary.endswith(".")
    assert "\n" not in summary
    # One sentence says what the functions of a family take and return; the others have a list.
    if not re.search(
        r"^(Takes .*(; returns |\. The reduced axes )|The result is )", doc, re.MULTILINE
    ):
        named = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
        assert named == list(inspect.signature(function).parameters)
        assert _section(doc, "Returns").strip()
    assert f"dialect.{name.removesuffix('_')}" in _section(doc, "Examples")


def _section(doc, title):
    found = re.search(rf"^{title}:\n(.*?)(?=^\S|\Z)", doc, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_runs(name):
    namespace = {"evaluate": evaluate, "dialect": dialect, "torch": torch}
    (found,) = doctest.DocTestFinder(recurse=False).find(
        inspect.unwrap(FUNCTIONS[name]), name, globs=namespace
    )
    said = []
    runner = doctest.DocTestRunner()
    runner.run(found, out=said.append)
    assert found.examples
    assert not runner.summarize(verbose=False).failed, "".join(said)


def _arguments(name, x, parameter, given):
    """Return one argument of the right type for each parameter, but `given` for `parameter`."""
    samples = {
        "Sequence[Value]": [x],
        "Sequence[Dim]": [0],
        "Sequence[int]": [0],
        "Sequence[float]": [1.0],
        "Counts": [(0, 0)][: x.type.rank],
        "str": "constant",
        "torch.dtype": torch.float32,
        "RankedTensorType": x.type,
    }
    made = {}
    for other in inspect.signature(FUNCTIONS[name]).parameters.values():
        kind = str(other.annotation).removesuffix(" | None")
        made[other.name] = x if kind in ("Value", "Operand") else samples.get(kind, 0)
    if "condition" in made:
        made["condition"] = dialect.equal(x, x)
    return made | {parameter: given}


def _call(name, parameter, given):
    return lambda x: FUNCTIONS[name](**_arguments(name, x, parameter, given))


@pytest.mark.parametrize(("name", "parameter"), ONLY_TENSORS)
def test_number_is_rejected_where_only_a_tensor_fits(name, parameter):
    with pytest.raises(ArgumentTypeError, match=rf"dialect\.{name}: {parameter} is 0\.5"):
        evaluate(_call(name, parameter, 0.5), [1.0])


@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
def test_number_becomes_a_constant(name, parameter):
    x = torch.tensor(True) if name in BOOLEANS else torch.tensor(1, dtype=torch.int32)
    number = True if name in BOOLEANS else 2
    from_number = evaluate(_call(name, parameter, number), x)
    from_tensor = evaluate(lambda x: _call(name, parameter, dialect.like(x, number))(x), x)
    torch.testing.assert_close(from_number, from_tensor, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "parameter"), INTEGERS)
def test_fraction_is_rejected_as_an_axis_or_size(name, parameter):
    with pytest.raises(ArgumentTypeError, match=rf"dialect\.{name}: {parameter} is 0\.5"):
        evaluate(_call(name, parameter, 0.5), [1.0])


@pytest.mark.parametrize(
    ("x", "number", "reason"),
    [
        (torch.tensor([1]), 0.5, "has only integers"),
        (torch.tensor([1], dtype=torch.int8), 300, "is too narrow"),
        (torch.tensor([1.0], dtype=torch.float16), 1e9, "is too narrow"),
        (torch.tensor([1.0]), 1j, "has no imaginary part"),
    ],
)
def test_number_that_the_element_type_lacks_is_rejected(x, number, reason):
    with pytest.raises(ArgumentTypeError, match=reason):
        evaluate(lambda x: dialect.mul(x, number), x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a", "y is 'a' (str), not a tensor of the graph (Value) or a number"),
        (None, "y is None (NoneType)"),
        (torch.ones(2), "try   pass dialect.tensor_constant(tensor)"),
    ],
)
def test_other_objects_are_rejected_by_name(given, message):
    with pytest.raises(ArgumentTypeError, match=re.escape(message)):
        evaluate(lambda x: dialect.mul(x, given), [1.0])


def test_two_numbers_are_rejected():
    with pytest.raises(ArgumentTypeError, match="at least one operand"):
        evaluate(lambda: dialect.mul(2, 3))


def test_infinity_and_numpy_numbers_are_accepted():
    assert evaluate(lambda x: dialect.minimum(x, float("inf")), [1.0]).tolist() == [1.0]
    assert evaluate(lambda x: dialect.mul(x, np.float32(2)), [1.0]).tolist() == [2.0]


def test_number_by_keyword_and_on_the_left():
    assert evaluate(lambda x: dialect.sub(y=x, x=1), [3.0]).tolist() == [-2.0]


@pytest.mark.parametrize("word", ["approximate", "combiner", "mode"])
def test_unknown_word_is_rejected_with_the_known_ones(word):
    calls = {
        "approximate": lambda x: dialect.gelu(x, "exact"),
        "combiner": lambda x: dialect.scan(x, 0, "add"),
        "mode": lambda x: dialect.pad(x, [(1, 1)], mode="edge"),
    }
    with pytest.raises(ArgumentTypeError, match=f"unknown {word} .*\n  try   pass one of"):
        evaluate(calls[word], [1.0])


def test_real_numbers_have_no_parts():
    for part in (dialect.real_part, dialect.imaginary_part):
        with pytest.raises(ArgumentTypeError, match="only complex numbers have parts"):
            evaluate(part, [1.0])


def test_evaluate_rejects_operands_of_different_types():
    with pytest.raises(ConversionError, match="element type"):
        evaluate(dialect.add, [1], [1.0])


@pytest.mark.parametrize("name", ALIASES)
def test_plain_name_is_the_same_function(name):
    assert getattr(dialect, name) is getattr(dialect, f"{name}_")
    assert f"`{name}` is another name of this function." in getattr(dialect, name).__doc__


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        (dialect, "resahpe", "reshape"),
        (dialect, "multiply", "mul"),
        (dialect, "unsqueeze", "expand_dims"),
        (coreai_torch, "convrt", "convert"),
        (coreai_torch, "debuging", "debugging"),
    ],
)
def test_unknown_name_suggests_the_nearest(module, name, near):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean '{near}'"):
        getattr(module, name)


def test_unknown_name_without_a_near_one():
    with pytest.raises(AttributeError, match=r"has no attribute 'qqqq'$"):
        dialect.qqqq  # noqa: B018
