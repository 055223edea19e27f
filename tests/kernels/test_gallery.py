"""Each kernel of the gallery agrees with its reference, without findings."""

import pytest
import torch
from kernels import large_gallery  # noqa: F401  adds to the gallery
from kernels.gallery import GALLERY

CASES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name, entry in GALLERY.items()
    for dtype in entry.dtypes
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_source_agrees_with_reference(name, dtype):
    entry = GALLERY[name]
    for size in entry.sizes:
        arguments = entry.arguments(dtype, size)
        assert entry.kernel.verify(*arguments, **entry.launch(*arguments))


def test_gallery_size():
    floats = {torch.float32, torch.float16, torch.bfloat16}
    assert sum(floats <= set(entry.dtypes) for entry in GALLERY.values()) >= 15
