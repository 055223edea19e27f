"""The editor of FX graphs: names, metadata and dynamic sizes after a change."""

import operator

import torch

from coreai_torch.fx import editing
from coreai_torch.fx.programs import copied_module, user_inputs, with_graph

aten = torch.ops.aten


class Sine(torch.nn.Module):
    def forward(self, x):
        return x.sin()


def exported():
    sizes = {"x": {0: torch.export.Dim("n", min=2, max=64)}}
    program = torch.export.export(Sine(), (torch.randn(4, 3),), dynamic_shapes=sizes)
    return program.run_decompositions({})


def test_replaced_output_keeps_its_name():
    program, x = exported(), torch.randn(5, 3)
    module = copied_module(program.graph_module)
    (sine,) = module.graph.find_nodes(op="call_function", target=aten.sin.default)
    editing.replace(sine, editing.Writer(sine).call(aten.cos.default, sine.args[0]))
    editing.erase_unused(module.graph, user_inputs(program))
    changed = with_graph(program, module)
    assert torch.equal(changed.module()(x), x.cos())
    assert changed.graph_signature == program.graph_signature
    assert [n.target for n in changed.graph.nodes if n.op == "call_function"] == [aten.cos.default]


def test_added_node_has_source_and_dynamic_sizes():
    program = exported()
    (sine,) = program.graph.find_nodes(op="call_function", target=aten.sin.default)
    write = editing.Writer(sine)
    flat = write.call(aten.view.default, sine.args[0], [-1])
    assert flat.meta["stack_trace"] == sine.meta["stack_trace"]
    assert isinstance(flat.meta["val"].shape[0], torch.SymInt)
    assert write.filled(sine.args[0], [2], 1.0).meta["val"].fake_mode is not None
    write.forget()
    assert len(program.graph.nodes) == 3


def test_inlined_call_becomes_the_nodes_of_a_graph():
    program = exported()
    module = copied_module(program.graph_module)
    (sine,) = module.graph.find_nodes(op="call_function", target=aten.sin.default)
    with module.graph.inserting_before(sine):
        call = module.graph.call_function(torch.unbind, sine.args)
        item = module.graph.call_function(operator.getitem, (call, 0))
    editing.replace(sine, item)
    offset = torch.tensor(2.0)
    traced = torch.fx.symbolic_trace(lambda x: [x + offset])
    editing.inline(call, traced, [sine.args[0]], "_inner")
    editing.erase_unused(module.graph, user_inputs(program))
    module.recompile()
    x = torch.randn(5, 3)
    assert torch.equal(module(x)[0], x + 2)
