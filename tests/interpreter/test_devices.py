"""`to_torch(program).to(device)`: constants, new tensors and states follow the module's device."""

from __future__ import annotations

import case_runner
import numpy as np
import pytest
import torch
from decoder import Decoder
from remote_device import DEVICE, Remote, pretended
from test_decoder import COMPOSITES, expected, staged
from test_interpreted_decoder import generated
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table, to_torch
from coreai_torch.errors import ConversionError
from coreai_torch.interpreter.indexing import write_last

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")

EVERY = 23


def run_remotely(program, feeds):
    module = to_torch(program)
    with pretended() as device:
        outputs = module.to(device).function("main")(feeds)
        assert all(isinstance(value, Remote) for value in outputs.values())
        return {name: value.cpu() for name, value in outputs.items()}


def check(entry, case, *, dynamic):
    case_runner.check(entry, case, dynamic=dynamic, run=run_remotely)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "case", "sizes"), [row for one in case_runner.ALL for row in case_runner.sized(one)]
)
def test_case(entry, case, sizes):
    check(entry, case, dynamic=sizes == "dynamic")


@pytest.mark.parametrize(("entry", "case"), case_runner.ALL[5::EVERY])
def test_some_cases(entry, case):
    check(entry, case, dynamic=False)


def converted(model, *inputs):
    program = torch.export.export(model, inputs).run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(program).to_coreai()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_decoder_generates_on_another_device(dtype):
    torch.manual_seed(1)
    model = Decoder().eval().to(dtype)
    program, names = staged(model, COMPOSITES)
    module = to_torch(program)
    here = generated(module)
    with torch.no_grad():
        assert dtype != torch.float32 or here == expected(model)
    with pretended() as device:
        module.to(device)
        assert all(isinstance(value, Remote) for value in module.states.values())
        module.reset()
        assert generated(module) == here
        assert sorted(module.states) == sorted(names)
        assert all(isinstance(value, Remote) for value in module.states.values())
        module.to("cpu")
        assert not any(isinstance(value, Remote) for value in module.states.values())


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.linspace(-1, 1, 9).reshape(3, 3))

    def forward(self, x):
        def step(i, h):
            return i + 1, torch.tanh(h @ self.weight)

        _, h = torch.while_loop(lambda i, h: i < 3, step, (torch.tensor(0), x))
        return torch.cond(h.sum() > 0, lambda h: h + 1, lambda h: h - 1, (h,))


def test_control_flow_runs_on_another_device():
    x = torch.linspace(-1, 2, 6).reshape(2, 3)
    program = converted(Loop(), x)
    ((name, _),) = to_torch(program)(x).items()
    want = Loop()(x)
    got = run_remotely(program, {"x": x})[name]
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


@pytest.mark.parametrize("kind", ["array", "cpu tensor", "remote tensor"])
def test_given_states_are_updated_in_place(kind):
    module = to_torch(converted(Counter(), torch.ones(3)))
    (name,) = module.function("main").states
    with pretended() as device:
        module.to(device)
        content = np.ones(3, np.float32) if kind == "array" else torch.ones(3)
        state = {name: content.to(device) if kind == "remote tensor" else content}
        given = state[name]
        module.function("main")({"x": torch.ones(3)}, state=state)
        assert state[name] is given
        assert np.asarray(state[name].cpu() if kind != "array" else given).tolist() == [2, 2, 2]


def test_constants_are_buffers_and_shared_with_the_file(tmp_path):
    model = nn.Linear(64, 64)
    asset = converted(model, torch.ones(1, 64)).save_asset(tmp_path / "linear.aimodel")
    module = to_torch(asset)
    sizes = [tuple(b.shape) for b in module.buffers()]
    assert (64, 64) in sizes
    assert module.state_dict() == {}


def test_entrypoints_share_their_constants(tmp_path):
    torch.manual_seed(1)
    program, _ = staged(Decoder().eval(), COMPOSITES)
    module = to_torch(program.save_asset(tmp_path / "decoder.aimodel"))
    ops = [
        op.attributes["value"]
        for f in module.program.functions.values()
        for op in f.body.ops
        if op.name == "coreai.constant" and op.attributes["value"].numel() > 1000
    ]
    large = [b for b in module.buffers() if b.numel() > 1000]
    assert len(ops) == 2 * len(large) > 0


@pytest.mark.parametrize("change", [nn.Module.half, lambda m: m.to(torch.float64)])
def test_another_dtype_is_rejected(change):
    module = to_torch(converted(nn.Linear(2, 2), torch.ones(1, 2)))
    with pytest.raises(ConversionError, match="dtypes of a program cannot change"):
        change(module)


def test_write_last_keeps_the_last_of_equal_rows():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 7, (40,), generator=generator)
    updates = torch.arange(80.0).reshape(40, 2)
    want = torch.zeros(9, 2).numpy()
    want[rows.numpy()] = updates.numpy()
    got = torch.zeros(9, 2)
    write_last(got, rows, updates)
    assert got.tolist() == want.tolist()
    assert DEVICE not in str(got.device)
