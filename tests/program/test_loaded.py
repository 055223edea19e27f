"""`coreai_torch.load`: programs called with tensors, and states without copies."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import coreai_torch
from coreai_torch.asset import array_memory
from coreai_torch.errors import NamingError, RunError


class Cache(torch.nn.Module):
    def forward(self, x, cache, position):
        cache.index_copy_(1, position, x)
        return cache.sum(1), position + 1, x.to(torch.bfloat16)


def inputs():
    return torch.randn(1, 1, 4), torch.zeros(1, 8, 4), torch.tensor([2])


@pytest.fixture(scope="module")
def program():
    names = {"state_names": ["cache.0"], "output_names": ["sum", "next", "half"]}
    return coreai_torch.convert(Cache().eval(), inputs(), **names)


@pytest.fixture(scope="module")
def loaded(program):
    return coreai_torch.load(program)


def test_ports_have_sizes_and_dtypes(loaded):
    main = loaded.functions["main"]
    assert list(main.inputs) == ["x", "position"]
    assert main.inputs["position"].dtype == torch.int32
    assert main.states["cache.0"].shape == (1, 8, 4)
    assert main.outputs["half"].dtype == torch.bfloat16


def test_a_state_is_updated_in_place(loaded):
    x, cache, position = inputs()
    expected = cache.clone()
    want = Cache()(x, expected, position)
    got = loaded({"x": x, "position": position}, state={"cache.0": cache})
    assert torch.equal(cache, expected)
    assert torch.allclose(got["sum"], want[0], rtol=1e-5)
    assert got["next"].item() == want[1].item()
    assert torch.equal(got["half"], want[2])


def test_a_kept_state_stays_in_the_memory_of_the_runtime(loaded):
    x, cache, _ = inputs()
    loaded.keep(cache)
    place = cache.data_ptr()
    for position in range(3):
        feed = {"x": x, "position": np.array([position])}
        loaded(feed, state={"cache.0": cache})
    assert cache.data_ptr() == place
    assert torch.equal(cache[0, :3], x[0].expand(3, 4))
    assert not cache[0, 3:].any()


def test_memory_of_a_kept_state_is_freed(loaded):
    gc.collect()
    before = len(array_memory._ARRAYS)
    cache = loaded.keep(torch.zeros(1, 8, 4))
    assert len(array_memory._ARRAYS) == before + 1
    del cache
    gc.collect()
    assert len(array_memory._ARRAYS) == before


def test_several_threads_call_one_program(loaded):
    def call(value):
        cache = loaded.keep(torch.zeros(1, 8, 4))
        feed = {"x": torch.full((1, 1, 4), float(value)), "position": torch.tensor([value])}
        return loaded(feed, state={"cache.0": cache})["sum"], cache

    with ThreadPoolExecutor(4) as pool:
        for value, (total, cache) in enumerate(pool.map(call, range(8))):
            assert torch.equal(total, torch.full((1, 4), float(value)))
            assert torch.equal(cache[0, value], total[0])


def test_a_saved_asset_is_loaded_by_its_path(program, tmp_path):
    program.save_asset(tmp_path / "cache.aimodel")
    x, cache, position = inputs()
    loaded = coreai_torch.load(tmp_path / "cache.aimodel")
    assert loaded({"x": x, "position": position}, state={"cache.0": cache})["sum"].shape == (1, 4)


@pytest.mark.parametrize(
    ("feed", "error", "text"),
    [
        ({"x": torch.zeros(1, 1, 4)}, NamingError, "position"),
        ({"x": torch.zeros(1, 4), "position": torch.tensor([0])}, RunError, r"\[1, 4\]"),
        ({"x": torch.zeros(1, 1, 4), "position": torch.tensor([0.5])}, RunError, "float32"),
    ],
)
def test_wrong_inputs_are_rejected(loaded, feed, error, text):
    with pytest.raises(error, match=text):
        loaded(feed, state={"cache.0": torch.zeros(1, 8, 4)})


def test_names_of_ports_may_depend_on_the_plan():
    captured = coreai_torch.prepare(Cache().eval(), inputs())
    states = [f"{state.node.name}.kept" for state in captured.plan.states]
    names = [port.name.upper() for port in captured.plan.inputs]
    program = coreai_torch.convert(captured, input_names=names, state_names=states, verify=False)
    main = coreai_torch.load(program).functions["main"]
    assert list(main.inputs) == ["X", "POSITION"]
    assert list(main.states) == ["cache.kept"]


def test_an_export_function_is_called_with_the_rewrites_of_convert():
    class Correlated(torch.nn.Module):
        def forward(self, x):
            return torch.corrcoef(x)

    x = torch.randn(3, 8)

    def export(model):
        return torch.export.export(model, (x,))

    with pytest.raises(Exception, match=r"aten\.equal"):
        export(Correlated())
    captured = coreai_torch.prepare(Correlated().eval(), export_fn=export)
    loaded = coreai_torch.load(coreai_torch.convert(captured))
    (found,) = loaded({"x": x}).values()
    assert torch.allclose(found, torch.corrcoef(x), rtol=1e-5, atol=1e-6)
