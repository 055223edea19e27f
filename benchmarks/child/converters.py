"""The measured converters: each takes an exported program and times its stages."""

import functools
import tempfile
from pathlib import Path

import coreai_programs
from stages import AnonymousPeak, peak_bytes, reset_peak


def _coreai(program, args, stages, repeats, keep, optimizes):
    from coreai_torch import TorchConverter, get_decomp_table

    with stages.timed("decompose"):
        program = program.run_decompositions(get_decomp_table())
    reset_peak()
    before = peak_bytes()
    for _ in range(repeats):
        converted, converter = (
            None,
            TorchConverter(),
        )  # do not time the destruction of the previous one
        with stages.timed("convert + optimize"):
            with stages.timed("convert"):
                converted = converter.add_exported_program(program).to_coreai()
            if optimizes:
                with stages.timed("optimize"):
                    converted.optimize()
    found = coreai_programs.op_counts(converted)
    saved = coreai_programs.finish(converted, args, stages, min(repeats, 3), keep)
    return {**found, **saved, "resident_before": before}


def ours(program, args, stages, repeats, keep):
    return _coreai(program, args, stages, repeats, keep, optimizes=True)


def memory(program, args, stages, repeats, keep):
    """Measure the memory of this converter instead of its time."""
    with AnonymousPeak() as gauge:
        found = ours(program, args, stages, repeats, keep)
    return {**found, "anonymous": gauge.bytes}


def published(program, args, stages, repeats, keep):
    """Measure the published converter, whose `to_coreai()` includes `optimize()`."""
    return _coreai(program, args, stages, repeats, keep, optimizes=False)


def ours_debug(program, args, stages, repeats, keep):
    """Measure this converter with debug locations."""
    import coreai_torch

    mode = coreai_torch.TorchConverter.Mode.DEBUG
    coreai_torch.TorchConverter = functools.partial(coreai_torch.TorchConverter, mode=mode)
    return ours(program, args, stages, repeats, keep)


def onnx(program, args, stages, repeats, keep):
    import torch

    for _ in range(repeats):
        with stages.timed("convert + optimize"):
            torch.onnx.export(program, dynamo=True, verbose=False)
    return {"peak": peak_bytes()}


def coremltools(program, args, stages, repeats, keep):
    import coremltools as ct

    with stages.timed("decompose"):
        program = program.run_decompositions({})
    for _ in range(repeats):
        with stages.timed("convert + optimize"):
            ct.convert(program, skip_model_load=True, minimum_deployment_target=ct.target.iOS18)
    return {"peak": peak_bytes()}


def openvino(program, args, stages, repeats, keep):
    import openvino

    for _ in range(repeats):
        with stages.timed("convert + optimize"):
            openvino.convert_model(program)
    return {"peak": peak_bytes()}


def executorch(program, args, stages, repeats, keep):
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    for _ in range(repeats):
        with stages.timed("convert + optimize"):
            edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
            edge.to_executorch()
    return {"peak": peak_bytes()}


def native_save(program, args, stages, repeats, keep):
    """Measure the lower bound of saving: the native serializer and SHA-256 of its output."""
    import hashlib

    from coreai_torch import TorchConverter, get_decomp_table

    program = program.run_decompositions(get_decomp_table())
    converted = TorchConverter().add_exported_program(program).to_coreai()
    converted.optimize()
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(repeats):
            file = Path(folder) / f"{attempt}.bytecode"
            with stages.timed("save"):
                converted._save_bytecode(file)
                with open(file, "rb") as written:
                    hashlib.file_digest(written, "sha256")
            file.unlink()
    return {}


ALL = {
    function.__name__: function
    for function in (
        ours,
        memory,
        published,
        ours_debug,
        native_save,
        onnx,
        coremltools,
        openvino,
        executorch,
    )
}
