"""Graphs for the tests of passes, captured with constants for all parameters and buffers."""

from __future__ import annotations

import coreai.authoring  # noqa: F401  must come before the bindings
import torch
from coreai._compiler.dialects import coreai as coreai_dialect

import coreai_torch
from coreai_torch.capture.io_plan import Names, plan
from coreai_torch.ir.build import Build
from coreai_torch.ir.types import ranked
from coreai_torch.passes.pass_graph import captured


def exported(model, *args, dynamic_shapes=None):
    program = torch.export.export(model.eval(), args, dynamic_shapes=dynamic_shapes)
    return program.run_decompositions(coreai_torch.get_decomp_table())


def pass_graph(model, *args, dynamic_shapes=None, **settings):
    """The graph of a model before any pass; its arguments are placeholders of an empty module."""
    program = exported(model, *args, dynamic_shapes=dynamic_shapes)
    ports = plan(program, Names())
    module = program.graph_module
    build = Build()
    with build.open():
        feed = {node: tensor for node, (_, tensor) in ports.constants.items()}
        feed.update((i.node, _argument(i.node.meta["val"])) for i in ports.inputs)
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        names = {node: name for node, (name, _) in ports.constants.items()}
        graph = captured(module, [feed[n] for n in placeholders], names=names, **settings)
    return graph, build  # the values live as long as the module


def _argument(val):
    graph = coreai_dialect.GraphOp("of_one_argument", [ranked(val)], [], ["x"], [])
    return next(iter(graph.arguments))


def targets(graph):
    """The names of the ops that are left to lower."""
    return [getattr(node.target, "__name__", str(node.target)) for node in graph.calls]
