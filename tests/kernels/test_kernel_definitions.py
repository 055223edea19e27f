"""Arguments of the constructor and of a call, and the errors for wrong ones."""

import pytest
import torch

from coreai_torch import MetalParameter, TorchMetalKernel

ID = MetalParameter("id", "uint", "thread_position_in_grid")
LAUNCH = {
    "threads_per_grid": (8, 1, 1),
    "threads_per_thread_group": (8, 1, 1),
    "result_shapes": [[8]],
}


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def kernel(name="checked_add", **changes):
    parts = {
        "input_names": ["x", "y"],
        "result_names": ["out"],
        "src": "out[id] = x[id] + y[id];",
        "torch_defn": add,
        "metal_params": [ID],
    }
    return TorchMetalKernel(name, **{**parts, **changes})


WRONG_DEFINITIONS = {
    "a name with a space": ({"name": "my add"}, "'my add' is not a valid name in Metal"),
    "a result name with a dot": (
        {"result_names": ["out.0"]},
        "'out.0' is not a valid name in Metal",
    ),
    "a keyword": ({"input_names": ["device", "y"]}, "'device' is not a valid name in Metal"),
    "a template word inside a name": (
        {"template_dtypes": {"x": "ou"}},
        "'ou' would be replaced inside the name 'out' too",
    ),
    "one name twice": ({"result_names": ["x"]}, "'x' names more than one"),
    "a parameter named like an input": (
        {"metal_params": [MetalParameter("x", "uint", "thread_position_in_grid")]},
        "'x' names more than one",
    ),
    "an unknown attribute": (
        {"metal_params": [MetalParameter("id", "uint", "thread_position_in_gird")]},
        "'thread_position_in_gird', which Metal does not have",
    ),
    "an input missing in the source": (
        {"src": "out[id] = x[id];"},
        "its source never names the input 'y'",
    ),
    "an input named in a comment only": (
        {"src": "out[id] = x[id]; // + y[id]"},
        "its source never names the input 'y'",
    ),
    "a result missing in the source": (
        {"src": "x[id] + y[id];"},
        "its source never names the result 'out'",
    ),
    "a template of no input": (
        {"template_dtypes": {"z": "TYPE"}},
        r"template_dtypes names 'z', but its inputs are \['x', 'y'\]",
    ),
    "one template word for two inputs": (
        {"template_dtypes": {"x": "TYPE", "y": "TYPE"}},
        "use a different word for each input",
    ),
    "too many result names": (
        {"result_names": ["out", "more"], "src": "out[id] = more[id] = x[id] + y[id];"},
        "result_names has 2 names",
    ),
    "no results": ({"result_names": []}, "result_names has 0 names"),
}


@pytest.mark.parametrize("what", WRONG_DEFINITIONS)
def test_wrong_definition_raises(what):
    changes, message = WRONG_DEFINITIONS[what]
    changes = dict(changes)
    name = changes.pop("name", "checked_add")
    with pytest.raises(ValueError, match=message) as caught:
        kernel(name, **changes)
    assert repr(name) in str(caught.value)


def test_more_than_31_parameters_raise():
    params = [MetalParameter(f"p{i}", "uint", "thread_position_in_grid") for i in range(29)]
    with pytest.raises(ValueError, match=r"has 32 inputs, results and parameters"):
        kernel(src="out[p0] = x[p0] + y[p0];", metal_params=params)


def test_template_word_counts_as_use_of_its_input():
    kernel(src="out[id] = TYPE(x[id]);", template_dtypes={"y": "TYPE"})


def variadic(*x: torch.Tensor) -> torch.Tensor:
    return x[0]


def keyword(x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
    return x + y


def optional(x: torch.Tensor, y: torch.Tensor | None) -> torch.Tensor:
    return x


def list_of_numbers(x: torch.Tensor, y: torch.Tensor) -> list[int]:
    return [1]


def unknown_name(x: "Tenser", y: torch.Tensor) -> torch.Tensor:  # noqa: F821
    return x


@pytest.mark.parametrize("bad", [variadic, keyword, optional, list_of_numbers, unknown_name, 3])
def test_reference_with_unsupported_types_raises(bad):
    with pytest.raises(TypeError, match="'checked_add'"):
        kernel(torch_defn=bad)


X = torch.arange(8.0)

WRONG_CALLS = {
    "a grid of zero": ({"threads_per_grid": (8, 0, 1)}, "no thread would run"),
    "a threadgroup of zero": ({"threads_per_thread_group": (0, 1, 1)}, "no thread would run"),
    "a grid of two numbers": ({"threads_per_grid": (8, 1)}, "three integers"),
    "a grid of fractions": ({"threads_per_grid": (8.0, 1, 1)}, "three integers"),
    "a threadgroup that is too large": (
        {"threads_per_thread_group": (64, 32, 1)},
        "2048 threads; a threadgroup has 1024",
    ),
    "a wrong result shape": ({"result_shapes": [[4]]}, r"has \[4\] for 'out', .* \[8\]"),
    "a wrong result rank": ({"result_shapes": [[8, 1]]}, r"has \[8, 1\] for 'out'"),
    "too few result shapes": ({"result_shapes": []}, r"its results are \['out'\]"),
    "a flat result shape": ({"result_shapes": [8]}, "a list of shapes"),
    "a result of rank 0": ({"result_shapes": [[]]}, "rank 1 or more"),
}


@pytest.mark.parametrize("what", WRONG_CALLS)
def test_wrong_call_raises(what):
    changes, message = WRONG_CALLS[what]
    with pytest.raises(ValueError, match=message) as caught:
        kernel()(X, X, **{**LAUNCH, **changes})
    assert "'checked_add'" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_input_dtype_without_metal_type_raises(dtype):
    with pytest.raises(ValueError, match=f"'checked_add': the input 'x' is {dtype}"):
        kernel()(torch.zeros(8, dtype=dtype), X, **LAUNCH)


def as_complex(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, y)


def test_result_dtype_without_metal_type_raises():
    with pytest.raises(ValueError, match=r"the result 'out' is torch\.complex64"):
        kernel(torch_defn=as_complex)(X, X, **LAUNCH)


def scaled(x: torch.Tensor, n: int, scale: float = 2.0, flip: bool = False) -> torch.Tensor:
    return (-x if flip else x) * scale + n


SCALED = TorchMetalKernel(
    "checked_scaled",
    input_names=["x", "n", "scale", "flip"],
    result_names=["out"],
    src="out[id] = (flip ? -x[id] : x[id]) * scale + n;",
    torch_defn=scaled,
    metal_params=[ID],
)


def test_defaults_of_the_reference_are_used():
    assert torch.equal(SCALED(X, 3, **LAUNCH), X * 2 + 3)
    assert torch.equal(SCALED(X, 3, 1, True, **LAUNCH), -X + 3)


@pytest.mark.parametrize(
    ("args", "name"),
    [((1.0, 1), "'x'"), ((X, 1.5), "'n'"), ((X, 1, "2"), "'scale'"), ((X, 1, 1.0, 1), "'flip'")],
)
def test_argument_of_wrong_type_raises(args, name):
    with pytest.raises(TypeError, match=f"'checked_scaled': the input {name} is declared as"):
        SCALED(*args, **LAUNCH)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_wrong_number_of_arguments_raises(count):
    with pytest.raises(TypeError, match=rf"takes 4 arguments.*but {count} were given"):
        SCALED(*[X] * count, **LAUNCH)


def one(x: torch.Tensor) -> torch.Tensor:
    return x


def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, x.t()


def several(x: torch.Tensor) -> list[torch.Tensor]:
    return [x, x]


def unary(torch_defn, results):
    return TorchMetalKernel(
        f"checked_{torch_defn.__name__}",
        ["x"],
        results,
        "".join(f"{r}[0] = x[0];" for r in results),
        torch_defn,
    )


def test_results_have_the_declared_form():
    x = torch.arange(6.0).view(2, 3)
    launch = {**LAUNCH, "result_shapes": [[2, 3], [3, 2]]}
    got = unary(pair, ["a", "b"])(x, **launch)
    assert isinstance(got, tuple)
    assert torch.equal(got[1], x.t())
    assert got[1].is_contiguous()
    listed = unary(several, ["a", "b"])(x, **{**LAUNCH, "result_shapes": [[2, 3], [2, 3]]})
    assert isinstance(listed, list)


def test_results_never_share_memory_with_the_arguments():
    x = torch.zeros(8)
    got = unary(one, ["a"])(x, **LAUNCH)
    x += 1
    assert torch.equal(got, torch.zeros(8))


def test_only_equal_kernels_share_an_op():
    assert kernel()._op is kernel()._op
    assert kernel()._op is not kernel(src="out[id] = y[id] + x[id];")._op
    assert kernel()._op is not kernel(torch_defn=lambda_like)._op
    assert torch.equal(kernel()(X, X, **LAUNCH), X + X)
    assert torch.equal(kernel(torch_defn=lambda_like)(X, X, **LAUNCH), X - X)


def lambda_like(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x - y


def test_gradients_flow_through_the_reference():
    x = X.clone().requires_grad_()
    kernel()(x, X, **LAUNCH).sum().backward()
    assert torch.equal(x.grad, torch.ones(8))
