"""Models and exported programs whose kernels run from their Metal source."""

import re

import pytest
import torch
from kernels import large_gallery  # noqa: F401  adds to the gallery
from kernels.gallery import GALLERY
from torch import nn

from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel, get_decomp_table
from coreai_torch.kernels import emulated, run_source

ID = MetalParameter("id", "uint", "thread_position_in_grid")


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


RIGHT = TorchMetalKernel("doubled", ["x"], ["out"], "out[id] = x[id] * 2;", double, [ID])
WRONG = TorchMetalKernel("tripled", ["x"], ["out"], "out[id] = x[id] * 3;", double, [ID])


class Model(nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, x):
        return 1 + self.kernel(
            x + 1,
            threads_per_grid=(x.shape[0], 1, 1),
            threads_per_thread_group=(32, 1, 1),
            result_shapes=[[x.shape[0]]],
        )


X = torch.arange(10.0)


def test_model_runs_the_source_inside_emulated():
    model = Model(WRONG)
    assert torch.equal(model(X), (X + 1) * 2 + 1)
    with emulated():
        assert torch.equal(model(X), (X + 1) * 3 + 1)
    assert torch.equal(model(X), (X + 1) * 2 + 1)


def test_verify_names_the_kernel_that_differs_from_its_reference():
    with emulated(verify=True):
        assert torch.equal(Model(RIGHT)(X), (X + 1) * 2 + 1)
        with pytest.raises(ValueError, match="'tripled' does not agree with its reference"):
            Model(WRONG)(X)


def exported(model, *args, **options):
    program = torch.export.export(model, args, **options)
    return program.run_decompositions(get_decomp_table())


def test_exported_program_runs_the_source_with_dynamic_sizes():
    program = exported(Model(WRONG), X, dynamic_shapes=({0: torch.export.Dim("n", max=4096)},))
    for size in (2, 33, 1000):
        x = torch.randn(size)
        with emulated():
            assert torch.equal(program.module()(x), (x + 1) * 3 + 1)


class Call(nn.Module):
    """An entry of the gallery as a model: tensors are inputs, numbers are constants."""

    def __init__(self, entry, arguments):
        super().__init__()
        self.entry = entry
        self.numbers = [None if isinstance(a, torch.Tensor) else a for a in arguments]

    def forward(self, *tensors):
        given = iter(tensors)
        arguments = [next(given) if n is None else n for n in self.numbers]
        return self.entry.kernel(*arguments, **self.entry.launch(*arguments))


# Its reference uses an op with a data-dependent result size.
DYNAMIC = [name for name in GALLERY if name != "histogram_in_device_memory"]


@pytest.mark.parametrize("name", DYNAMIC)
def test_gallery_runs_with_dynamic_sizes(name):
    """Export at one size, convert, and run the source at other sizes."""
    entry = GALLERY[name]
    dtype = entry.dtypes[-1]
    small, large = (
        [a for a in entry.arguments(dtype, n) if isinstance(a, torch.Tensor)]
        for n in (entry.sizes[-1], entry.sizes[-1] + 8)
    )
    shapes = [
        {
            i: torch.export.Dim.AUTO
            for i, (a, b) in enumerate(zip(s.shape, b.shape, strict=True))
            if a != b
        }
        for s, b in zip(small, large, strict=True)
    ]
    model = Call(entry, entry.arguments(dtype, entry.sizes[-1]))
    program = exported(model, *small, dynamic_shapes=(tuple(shapes),))
    converter = TorchConverter().register_custom_kernels([entry.kernel])
    assert "metal4_kernel" in str(converter.add_exported_program(program).to_coreai())
    for tensors in (small, large):
        with emulated(verify=True):
            program.module()(*tensors)


def test_source_in_a_converted_program_runs():
    converter = TorchConverter().register_custom_kernels([WRONG])
    program = converter.add_exported_program(exported(Model(WRONG), X)).to_coreai()
    pattern = r'kernel_name = "(\w+)", kernel_source = "((?:[^"\\]|\\.)*)"'
    name, source = re.search(pattern, str(program)).groups()
    source = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), source)
    (got,) = run_source(
        source,
        name,
        [X],
        [((10,), torch.float32)],
        threads_per_grid=(10, 1, 1),
        threads_per_thread_group=(32, 1, 1),
    )
    assert torch.equal(got, X * 3)


def shared(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_sources_with_shared_helpers_compile_together():
    """A device may compile all kernels of a program as one library."""
    from coreai_torch.ir.metal import Operand, generate

    helper = "inline float next(float v) { return v + 1; }"
    other = "inline float next(float v) { return v + 2; }"
    texts = [
        generate(
            TorchMetalKernel(
                f"library_{i}", ["x"], ["out"], "out[id] = next(x[id]);", shared, [ID], h
            )._kernel,
            [Operand(1, torch.float32)],
            [Operand(1, torch.float32)],
        )
        for i, h in enumerate((helper, helper, other))
    ]
    library = "\n".join(t.text for t in texts)
    for text, step in zip(texts, (1, 1, 2), strict=True):
        (got,) = run_source(
            library,
            text.name,
            [X],
            [((10,), torch.float32)],
            threads_per_grid=(10, 1, 1),
            threads_per_thread_group=(32, 1, 1),
        )
        assert torch.equal(got, X + step)
