"""Which modules become separate graphs: every instance, every call, at any depth."""

import pytest
import torch
from boundary import NORM, Model, Norm, assert_agrees, composite_spec, composites, converted, graphs
from torch import nn

import coreai_torch
from coreai_torch import ExternalizeSpec

X = torch.linspace(-2, 3, 18).reshape(3, 6)


def callees(program, name="main"):
    return graphs(program)[name].callees


def test_each_instance_has_its_attributes():
    model = nn.Sequential(Norm(1e-5), nn.Linear(6, 6), Norm(0.25), Norm(1e-5))
    program = converted(model, X, modules=[NORM])
    eps = [graphs(program)[name].attrs["eps"] for name in callees(program)]
    assert eps == ["9.99999974E-6 : f32", "2.500000e-01 : f32", "9.99999974E-6 : f32"]
    assert len(set(callees(program))) == 3  # a graph is named after its module
    assert_agrees(program, model, (X,))


def test_optimize_keeps_graphs_with_different_attributes():
    class Tagged(nn.Module):
        def __init__(self, tag):
            super().__init__()
            self.tag = tag

        def forward(self, x):
            return x * 2

    model = Model(lambda m, x: m.a(x) + m.b(x + 1), a=Tagged("one"), b=Tagged("two"))
    program = converted(model, X, modules=[composite_spec(Tagged, "tagged", "tag")])
    assert_agrees(program, model, (X,))
    assert [graphs(program)[n].attrs["tag"] for n in callees(program)] == ['"one"', '"two"']


def test_calls_of_one_instance_with_equal_types_share_a_graph():
    model = Model(lambda m, x: m.n(m.n(x)) + m.n(x * 2), n=Norm())
    program = converted(model, X, modules=[NORM])
    assert len(callees(program)) == 3
    assert len(set(callees(program))) == 1
    assert_agrees(program, model, (X,))


def test_calls_with_other_shapes_or_arguments_get_separate_graphs():
    model = Model(lambda m, x: m.n(x) + m.n(x[0]) + m.n(x, x) + m.n(x, extra=None), n=Norm())
    program = converted(model, X, modules=[NORM])
    first, row, extra, plain = (graphs(program)[name] for name in callees(program))
    assert first == plain
    assert len({first.name, row.name, extra.name}) == 3
    assert extra.inputs == ["weight", "shift", "x", "extra"]
    assert first.inputs == row.inputs == ["weight", "shift", "x"]
    assert_agrees(program, model, (X,))


class Block(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.norm = norm or Norm()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class ReadsWeights(nn.Module):
    """Has one norm that it calls, and two whose weights it reads or ignores."""

    def __init__(self):
        super().__init__()
        self.called, self.read, self.ignored = Norm(), Norm(), Norm()

    def forward(self, x):
        return self.called(x) * self.read.weight


def test_modules_that_are_never_called_are_named():
    never = r"never calls 'read' \(Norm\), 'ignored' \(Norm\), so"
    with pytest.warns(UserWarning, match=never):
        program = converted(ReadsWeights(), X, modules=[NORM])
    assert len(callees(program)) == 1
    for half in ({}, {"precision": "float16", "calibration": [(X,)]}):
        with pytest.warns(UserWarning, match=never):
            coreai_torch.convert(
                ReadsWeights().eval(), (X,), externalize_modules=[NORM], verify=False, **half
            )


def test_modules_that_a_branch_calls_are_not_named(recwarn):
    def branch(model, x):
        return torch.cond(x.sum() > 0, model.a, model.b, (x,))

    converted(Model(branch, a=Norm(), b=Norm()), X, modules=[NORM])
    assert not [one for one in recwarn if "never calls" in str(one.message)]


def test_nested_match_is_called_from_the_outer_graph():
    model = Model(lambda m, x: m.outer(m.outer(x)), outer=Block())
    program = converted(model, X, modules=[NORM, composite_spec(Block, "block")])
    (block,) = set(callees(program))
    (norm,) = callees(program, block)
    assert graphs(program)[block].composite == "block"
    assert graphs(program)[norm].composite == "norm"
    # The weights of the inner module are operands of the outer graph.
    owned = ["norm.weight", "linear.weight", "linear.bias", "norm.shift"]
    assert graphs(program)[block].inputs == [*owned, "x"]
    assert_agrees(program, model, (X,))


def test_recursive_module():
    class Tree(nn.Module):
        def __init__(self, depth, *children):
            super().__init__()
            self.depth = depth
            self.children_ = nn.ModuleList(children)

        def forward(self, x):
            return sum((child(x) for child in self.children_), x * self.depth)

    model = Model(lambda m, x: m.tree(x), tree=Tree(1, Tree(2, Tree(3), Tree(4)), Tree(5)))
    program = converted(model, X, modules=[composite_spec(Tree, "tree", "depth")])
    assert len(composites(program, "tree")) == 5
    (root,) = callees(program)
    assert [graphs(program)[n].attrs["depth"] for n in callees(program, root)] == [
        "2 : si64",
        "5 : si64",
    ]
    assert_agrees(program, model, (X,))


def test_module_with_two_paths_is_one_module():
    shared = Norm()
    model = Model(lambda m, x: m.a(x) + m.b(x + 1), a=shared, b=shared)
    program = converted(model, X, modules=[NORM])
    assert len(callees(program)) == 2
    (name,) = set(callees(program))
    assert name.startswith("a.norm_")
    assert_agrees(program, model, (X,))


def test_subclasses_match_and_the_first_spec_wins():
    class Special(Norm):
        def forward(self, x, extra=None):
            return super().forward(x, extra) * 2

    model = nn.Sequential(Norm(), Special(0.5))
    both = [composite_spec(Special, "special"), NORM]
    program = converted(model, X, modules=both)
    assert [graphs(program)[n].composite for n in callees(program)] == ["norm", "special"]
    assert_agrees(program, model, (X,))
    program = converted(model, X, modules=both[::-1])
    assert [graphs(program)[n].composite for n in callees(program)] == ["norm", "norm"]


def test_module_that_is_never_called_has_no_graph():
    model = Model(lambda m, x: m.used(x), used=Norm(), unused=Norm(0.5))
    program = converted(model, X, modules=[NORM])
    assert [graph.attrs["eps"] for graph in composites(program, "norm")] == ["9.99999974E-6 : f32"]


def test_unused_call_has_no_graph():
    def forward(m, x):
        m.n(x)
        return x * 2

    program = converted(Model(forward, n=Norm()), X, modules=[NORM])
    assert list(graphs(program)) == ["main"]


def test_identity_module_has_no_graph():
    model = Model(lambda m, x: m.same(x) * 2, same=nn.Identity())
    program = converted(model, X, modules=[composite_spec(nn.Identity, "identity")])
    assert list(graphs(program)) == ["main"]
    assert_agrees(program, model, (X,))


CONTAINERS = {
    "list": Model(
        lambda m, x: sum(layer(x) for layer in m.layers),
        layers=nn.ModuleList([Norm(0.1), Norm(0.2)]),
    ),
    "dict": Model(
        lambda m, x: m.layers["a"](x) * m.layers["b"](x),
        layers=nn.ModuleDict({"a": Norm(0.1), "b": Norm(0.2)}),
    ),
    "sequential": nn.Sequential(nn.Sequential(Norm(0.1)), nn.ReLU(), Norm(0.2)),
    "wrapper": nn.Sequential(Block(Norm(0.1)), Block(Norm(0.2))),
}


@pytest.mark.parametrize("where", [*CONTAINERS, "compiled"])
def test_modules_in_containers_and_wrappers(where):
    model = CONTAINERS.get(where) or nn.Sequential(torch.compile(Norm(0.1)), Norm(0.2))
    program = converted(model, X, modules=[NORM])
    found = [graphs(program)[name].attrs["eps"] for name in callees(program)]
    assert found == ["1.000000e-01 : f32", "2.000000e-01 : f32"]
    if where != "compiled":  # eager would run torch.compile
        assert_agrees(program, model, (X,))


def test_externalize_every_module():
    model = nn.Sequential(Block(), nn.ModuleList([nn.Linear(2, 2)]), Block())
    del model[1]
    program = converted(model, X, modules=[nn.Module])
    (root,) = callees(program)
    assert len(callees(program, root)) == 2
    assert [len(callees(program, block)) for block in callees(program, root)] == [2, 2]
    assert not any(graph.private or graph.composite for graph in graphs(program).values())
    assert_agrees(program, model, (X,))


def test_externalize_torch_modules():
    weight_norm = torch.nn.utils.parametrizations.weight_norm
    model = nn.Sequential(weight_norm(nn.Linear(6, 4)), nn.ReLU(inplace=True), nn.Linear(4, 2))
    modules = [composite_spec(nn.Linear, "linear", "in_features"), composite_spec(nn.ReLU, "relu")]
    program = converted(model, X, modules=modules)
    first, relu, second = (graphs(program)[name] for name in callees(program))
    original = "parametrizations.weight.original"
    assert first.inputs == ["bias", f"{original}0", f"{original}1", "input"]
    assert second.inputs == ["weight", "bias", "input"]
    assert (relu.inputs, relu.outputs) == (["input"], ["output"])
    assert_agrees(program, model, (X,))


def test_single_class_or_spec_instead_of_a_list():
    model = nn.Sequential(Norm())
    for lone in (ExternalizeSpec(Norm), NORM):
        assert str(converted(model, X, modules=lone)) == str(converted(model, X, modules=[lone]))


def test_empty_list_converts_without_externalization():
    model = nn.Sequential(Norm())
    assert str(converted(model, X, modules=[])) == str(converted(model, X, modules=None))


def test_class_without_instances_warns():
    with pytest.warns(UserWarning, match="holds no Bilinear") as caught:
        converted(nn.Sequential(Norm()), X, modules=[NORM, nn.Bilinear])
    assert [w.category for w in caught].count(UserWarning) == 1


def test_no_warning_if_an_earlier_spec_matched_all_instances():
    program = converted(nn.Sequential(Norm()), X, modules=[NORM, nn.Sequential, Norm])
    assert len(composites(program, "norm")) == 1
