"""Externalization does not change the caller's model or exported program."""

import copy

import pytest
import torch
from boundary import NORM, Model, Norm, assert_agrees, composite_spec, converted, graphs, staged
from torch import nn

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table

X = torch.linspace(-2, 3, 18).reshape(3, 6)


def snapshot(model):
    """Return every attribute of every module, including the contents of containers."""
    return {
        path: {
            name: dict(value) if isinstance(value, dict) else value
            for name, value in vars(module).items()
        }
        for path, module in model.named_modules()
    }


def model_with_hooks():
    model = nn.Sequential(Norm(), nn.Linear(6, 6), Norm(0.5))
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    model[2].register_forward_hook(lambda module, args, output: output * 5)
    return model.eval()


def test_model_is_unchanged_after_success():
    model = model_with_hooks()
    before, values = snapshot(model), copy.deepcopy(model.state_dict())
    converted(model, X, modules=[NORM, nn.Sequential])
    assert snapshot(model) == before
    assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())


class Failing(nn.Module):
    def forward(self, x):
        raise LookupError("inside forward")


def test_model_is_unchanged_after_an_exception_in_forward():
    model = Model(lambda m, x: m.broken(m.n(x)), n=Norm(), broken=Failing()).eval()
    before = snapshot(model)
    with pytest.raises(LookupError, match="inside forward"):
        converted(model, X, modules=[NORM, composite_spec(Failing)])
    assert snapshot(model) == before
    model.broken = nn.Identity()
    assert_agrees(converted(model, X, modules=[NORM]), model, (X,))


def test_model_is_unchanged_after_an_exception_in_export_fn():
    model = model_with_hooks()
    before = snapshot(model)

    def export_fn(module):
        assert snapshot(module) != before  # the hooks are registered now
        raise LookupError("before export")

    with pytest.raises(LookupError, match="before export"):
        TorchConverter().add_pytorch_module(model, export_fn, externalize_modules=[NORM])
    assert snapshot(model) == before


def test_model_is_unchanged_after_a_missing_attribute():
    model = model_with_hooks()
    before = snapshot(model)
    spec = ExternalizeSpec(Norm, "norm", ["epsilon"])
    with pytest.raises(ValueError, match=r"'epsilon', but Norm at '0'.*\n.*\['eps'\]"):
        converted(model, X, modules=[spec])
    assert snapshot(model) == before


def test_model_is_unchanged_after_a_rejected_argument():
    class Scale(nn.Module):
        def forward(self, x, factor):
            return x * factor

    model = Model(lambda m, x: m.scale(x, factor=2.5), scale=Scale()).eval()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"'factor' of .* 'scale' \(Scale\) is 2.5 \(float\)"):
        converted(model, X, modules=[composite_spec(Scale)])
    assert snapshot(model) == before


def test_user_hooks_are_inside_the_boundary():
    model = model_with_hooks()
    program = converted(model, X, modules=[NORM])
    main = graphs(program)["main"]
    assert "broadcasting_mul" not in main.body  # times 3 and times 5
    assert_agrees(program, model, (X,))


def test_graph_outside_of_the_boundary_equals_a_plain_export():
    """Lower the marked graph without specs, and compare it with a plain export."""

    def lines(converter):
        return str(converter.to_coreai())

    model, seen = model_with_hooks(), []

    def export_fn(module):
        program = torch.export.export(module, (X,)).run_decompositions(get_decomp_table())
        seen.append(program)
        return program

    TorchConverter().add_pytorch_module(model, export_fn, externalize_modules=[NORM])
    with_marks = lines(TorchConverter().add_exported_program(seen[0]))
    assert with_marks == lines(TorchConverter().add_exported_program(export_fn(model)))


def test_second_conversion_equals_the_first():
    model = model_with_hooks()
    first = converted(model, X, modules=[NORM])
    staging = staged(TorchConverter(), model, X, modules=[NORM])
    assert str(first) == str(staging.to_coreai()) == str(staging.to_coreai())


def test_export_fn_may_wrap_or_copy_the_model():
    model = nn.Sequential(nn.Sequential(Norm(), nn.Linear(6, 6)))
    specs = [composite_spec(nn.Sequential, "pair")]

    def inputs(prepare):
        def export_fn(module):
            program = torch.export.export(prepare(module), (X,))
            return program.run_decompositions(get_decomp_table())

        converter = TorchConverter().add_pytorch_module(
            model.eval(), export_fn, externalize_modules=specs
        )
        found = graphs(converter.to_coreai()).values()
        return {graph.name.partition("pair")[0]: graph.inputs for graph in found}

    plain = inputs(lambda module: module)
    assert plain["_0."] == ["0.weight", "1.weight", "1.bias", "0.shift", "input"]
    assert plain == inputs(lambda module: nn.Sequential(module))
    assert plain == inputs(copy.deepcopy)


def test_export_fn_may_run_the_model_first():
    model = nn.Sequential(Norm())

    def export_fn(module):
        torch.testing.assert_close(module(X), expected)
        return torch.export.export(module, (X,)).run_decompositions(get_decomp_table())

    expected = model(X)
    converter = TorchConverter().add_pytorch_module(model, export_fn, externalize_modules=[NORM])
    assert_agrees(converter.to_coreai(), model, (X,))
