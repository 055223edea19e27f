"""Promises of the seed documents about Metal kernels; running one needs a device with Metal."""

import pytest
import torch
from compat.programs import exported
from torch import nn

from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel

PARAMETER = MetalParameter("id", "uint", "thread_position_in_grid")


def torch_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


VECTOR_ADD = TorchMetalKernel(
    "promised_vector_add",
    input_names=["x", "y"],
    result_names=["output"],
    src="output[id] = x[id] + y[id];",
    torch_defn=torch_add,
    metal_params=[PARAMETER],
)


class Adds(nn.Module):
    def forward(self, x, y):
        return VECTOR_ADD(
            x,
            y,
            threads_per_grid=(8, 1, 1),
            threads_per_thread_group=(8, 1, 1),
            result_shapes=[[8]],
        )


X, Y = torch.arange(8.0), torch.full((8,), 0.5)


def test_registering_returns_the_converter():
    converter = TorchConverter()
    assert converter.register_custom_kernels([VECTOR_ADD]) is converter


def test_kernel_runs_its_torch_definition():
    assert torch.equal(Adds()(X, Y), X + Y)


def test_kernel_survives_export_and_decomposition():
    program = exported(Adds(), X, Y)
    assert any("promised_vector_add" in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(X, Y), X + Y)


def test_registered_kernel_becomes_a_core_ai_operation():
    converter = TorchConverter().register_custom_kernels([VECTOR_ADD])
    program = converter.add_exported_program(exported(Adds(), X, Y)).to_coreai()
    program.optimize()
    text = str(program)
    assert "metal4_kernel" in text
    assert "output[id] = x[id] + y[id];" in text


def test_model_without_the_kernel_converts():
    converter = TorchConverter().register_custom_kernels([VECTOR_ADD])
    program = converter.add_exported_program(exported(nn.Linear(8, 2), X)).to_coreai()
    assert "metal4_kernel" not in str(program)


def _of(torch_defn, names=("x", "y"), results=("output",)):
    return TorchMetalKernel(
        f"refused_{torch_defn.__name__}",
        input_names=list(names),
        result_names=list(results),
        src="",
        torch_defn=torch_defn,
    )


def unannotated(x, y) -> torch.Tensor:
    return x + y


def text_argument(x: torch.Tensor, y: str) -> torch.Tensor:
    return x


def no_return(x: torch.Tensor, y: torch.Tensor):
    return x + y


def open_tuple(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, y


@pytest.mark.parametrize("definition", [unannotated, text_argument, no_return, open_tuple])
def test_definition_with_unsupported_types_raises(definition):
    with pytest.raises(TypeError):
        _of(definition)


def test_wrong_number_of_input_names_raises():
    with pytest.raises(ValueError, match="input_names"):
        _of(torch_add, names=("x",))
