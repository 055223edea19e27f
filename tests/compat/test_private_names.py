"""Private names that other programs import give the right numbers.

`compat.names` lists the programs. `tests/compression` and `tests/debugging` have the layers and
the tools of debugging.
"""

from types import SimpleNamespace

import pytest
import torch
from compat.programs import assert_close, exported
from runtime import run
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter, _aten_to_core, _decomp, _torch_metal_kernel, _utils
from coreai_torch._compression import custom_layers, utils
from coreai_torch._compression._floatx import Float4Tensor
from coreai_torch._compression._intx import IntxTensor, SubbyteTensor, UintxTensor
from coreai_torch.composite_ops import SDPA, RoPE
from coreai_torch.composite_ops._sdpa import SDPA as PRIVATE_SDPA
from coreai_torch.externalize import _torch_export_module

SCALE = torch.tensor(0.5)


class Function(nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


def converted(module, x):
    """Convert, run and return the one output."""
    names = {"input_names": ["x"], "output_names": ["y"]}
    program = TorchConverter().add_exported_program(exported(module, x), **names).to_coreai()
    return run(program, {"x": x})["y"]


def test_names_are_those_of_the_package():
    assert _torch_metal_kernel.TorchMetalKernel is coreai_torch.TorchMetalKernel
    assert _decomp.get_decomp_table is coreai_torch.get_decomp_table
    assert _utils.get_operand is not _utils.get_operands
    assert PRIVATE_SDPA is SDPA
    assert "cond" in _aten_to_core._higher_order_resolver


def test_activation_ops_round_and_clamp():
    def both(self, x):
        whole = custom_layers.quantize(x, SCALE, torch.int8)
        return custom_layers.dequantize(whole, SCALE)

    x = torch.tensor([0.2, 0.25, 0.75, -1.3, 100.0, -100.0])
    want = torch.tensor([0.0, 0.0, 1.0, -1.5, 63.5, -64.0])
    module = Function(both)
    assert torch.equal(module(x), want)
    assert torch.equal(converted(module, x), want)


def test_weight_ops_decode_tables_and_masks():
    table = torch.tensor([10.0, 20.0, 30.0, 40.0]).reshape(1, 1, 4, 1)
    buffers = {
        "indices": torch.tensor([[0, 3], [2, 1]], dtype=torch.uint8),
        "table": table,
        "data": torch.tensor([5.0, 6.0]),
        "mask": torch.tensor([[1, 0], [0, 1]], dtype=torch.uint8),
    }

    def decode(self, x):
        looked_up = custom_layers.lut_to_dense(self.indices, self.table, 0)
        return x + looked_up + custom_layers.sparse_to_dense(self.data, self.mask)

    module, x = Function(decode, **buffers), torch.zeros(2, 2)
    want = torch.tensor([[15.0, 40.0], [30.0, 26.0]])
    assert torch.equal(module(x), want)
    assert torch.equal(converted(module, x), want)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("cls", [IntxTensor, UintxTensor])
def test_narrow_integers_survive_packing(cls, bits):
    low = -(2 ** (bits - 1)) if cls is IntxTensor else 0
    values = torch.arange(low, low + 2**bits).repeat(3)
    values = values.to(torch.int8 if cls is IntxTensor else torch.uint8)
    packed = cls.from_unpacked(values, bits)
    assert isinstance(packed, SubbyteTensor)
    assert torch.equal(packed.unpack(), values)
    assert packed.elem.numel() == -(-values.numel() * bits // 8)


@pytest.mark.parametrize("cls", [IntxTensor, UintxTensor])
@pytest.mark.parametrize("value", [3, 3.0, True, 0])
def test_python_number_is_packed_as_a_scalar(cls, value):
    packed = cls.from_unpacked(value, 4)
    assert packed.shape == ()
    assert packed.unpack().item() == int(value)


def test_narrow_floats_are_unpacked():
    packed = Float4Tensor(torch.tensor([0x10, 0x32, 0x74, 0xF9], dtype=torch.uint8))
    want = torch.tensor([0, 0.5, 1, 1.5, 2, 6, -0.5, -6])
    assert torch.equal(packed.unpack(), want)


def test_layer_decodes_a_weight_as_a_parametrization():
    weight = torch.tensor([[1, -2], [3, -4]], dtype=torch.int8)
    layer = custom_layers.WeightDequantizeModule(weight, torch.full((2, 1), 0.5))
    layer.__class__ = utils.wrap_for_parametrization(type(layer))
    linear, x = nn.Linear(2, 2, bias=False), torch.tensor([[1.0, 10.0]])
    nn.utils.parametrize.register_parametrization(linear, "weight", layer, unsafe=True)
    want = x @ (weight * 0.5).T
    assert torch.equal(linear(x), want)
    assert_close(converted(linear, x), want)


def test_module_is_exported_by_itself():
    prepared = SimpleNamespace(module=nn.ReLU(), args=[torch.randn(3)], dynamic_shapes=None)
    program = _torch_export_module(prepared)
    assert [str(n.target) for n in program.graph.nodes if n.op == "call_function"] == [
        "aten.relu.default"
    ]


def test_graph_is_printed(capsys):
    program = TorchConverter().add_exported_program(exported(nn.ReLU(), torch.ones(2))).to_coreai()
    _utils.print_graph(program)
    assert "coreai.relu" in capsys.readouterr().out


@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_hugging_face_converts(causal):
    torch.manual_seed(0)
    x = torch.randn(1, 4, 5, 8)
    attend = SDPA(is_causal=causal, _use_hf_impl=True)
    module = Function(lambda self, q: attend(q, q[:, :2], q[:, 2:]))
    assert_close(converted(module, x), module(x))
    assert_close(module(x), SDPA(is_causal=causal)(x, x[:, :2], x[:, 2:]))


def test_rotary_embedding_of_hugging_face_converts():
    x, positions = torch.randn(1, 2, 5, 8), torch.arange(3, 8)[None]
    rope = RoPE(_use_hf_impl=True)
    module = Function(lambda self, q: rope(q, position_ids=positions))
    assert_close(converted(module, x), module(x))
    assert_close(module(x), RoPE()(x, position_ids=positions))
