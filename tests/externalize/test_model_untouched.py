"""The caller's model is left exactly as it was, and so is its program."""

import copy

import pytest
import torch
from boundary import NORM, Model, Norm, agrees, converted, graphs, kept, staged
from torch import nn

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table

X = torch.linspace(-2, 3, 18).reshape(3, 6)


def portrait(model):
    """Every attribute of every module, with the content of those that hold others."""
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


def test_after_success():
    model = model_with_hooks()
    before, values = portrait(model), copy.deepcopy(model.state_dict())
    converted(model, X, modules=[NORM, nn.Sequential])
    assert portrait(model) == before
    assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())


class Failing(nn.Module):
    def forward(self, x):
        raise LookupError("inside forward")


def test_after_an_exception_in_forward():
    model = Model(lambda m, x: m.broken(m.n(x)), n=Norm(), broken=Failing()).eval()
    before = portrait(model)
    with pytest.raises(LookupError, match="inside forward"):
        converted(model, X, modules=[NORM, kept(Failing)])
    assert portrait(model) == before
    model.broken = nn.Identity()
    agrees(converted(model, X, modules=[NORM]), model, (X,))


def test_after_an_exception_in_export_fn():
    model = model_with_hooks()
    before = portrait(model)

    def export_fn(module):
        assert portrait(module) != before  # the hooks are there now
        raise LookupError("before export")

    with pytest.raises(LookupError, match="before export"):
        TorchConverter().add_pytorch_module(model, export_fn, externalize_modules=[NORM])
    assert portrait(model) == before


def test_after_an_attribute_is_missing():
    model = model_with_hooks()
    before = portrait(model)
    spec = ExternalizeSpec(Norm, "norm", ["epsilon"])
    with pytest.raises(ValueError, match=r"'epsilon', but Norm at '0'.*\n.*\['eps'\]"):
        converted(model, X, modules=[spec])
    assert portrait(model) == before


def test_after_a_refused_argument():
    class Scale(nn.Module):
        def forward(self, x, factor):
            return x * factor

    model = Model(lambda m, x: m.scale(x, factor=2.5), scale=Scale()).eval()
    before = portrait(model)
    with pytest.raises(ValueError, match=r"'factor' of .* 'scale' \(Scale\) is 2.5 \(float\)"):
        converted(model, X, modules=[kept(Scale)])
    assert portrait(model) == before


def test_hooks_of_the_caller_are_inside_the_boundary():
    model = model_with_hooks()
    program = converted(model, X, modules=[NORM])
    main = graphs(program)["main"]
    assert "broadcasting_mul" not in main.body  # times 3 and times 5
    agrees(program, model, (X,))


def test_marks_leave_no_trace_in_the_program_around_them():
    """The graph that is lowered without the specs is the one of a plain export."""

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


def test_a_second_conversion_is_like_the_first():
    model = model_with_hooks()
    first = converted(model, X, modules=[NORM])
    staging = staged(TorchConverter(), model, X, modules=[NORM])
    assert str(first) == str(staging.to_coreai()) == str(staging.to_coreai())


def test_export_fn_may_wrap_or_copy_the_model():
    model = nn.Sequential(nn.Sequential(Norm(), nn.Linear(6, 6)))
    specs = [kept(nn.Sequential, "pair")]

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
    agrees(converter.to_coreai(), model, (X,))
