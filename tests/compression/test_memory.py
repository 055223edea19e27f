"""Pages of mapped files are released; memory that no file has is kept."""

import sys
from pathlib import Path

import pytest
import torch

from coreai_torch.compression.memory import release_mapped_pages

ELEMENTS = 4 << 20

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not Path("/proc/self/pagemap").exists(),
    reason="reads /proc/self/pagemap",
)


def file_pages():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssFile"))


def mapped(path):
    path.write_bytes(torch.arange(ELEMENTS, dtype=torch.float32).numpy().tobytes())
    return torch.from_file(str(path), shared=False, size=ELEMENTS, dtype=torch.float32)


def test_pages_of_a_mapped_file_are_released_and_read_again(tmp_path):
    tensor = mapped(tmp_path / "weights")
    total = tensor.sum()
    before = file_pages()
    release_mapped_pages(tensor)
    assert before - file_pages() > 0.9 * tensor.nbytes
    assert tensor.sum() == total


def test_a_written_page_is_kept(tmp_path):
    tensor = mapped(tmp_path / "weights")
    tensor[ELEMENTS // 2] = -1
    release_mapped_pages(tensor)
    assert tensor[ELEMENTS // 2] == -1


def test_memory_without_a_file_is_kept():
    tensor = torch.arange(ELEMENTS, dtype=torch.float32)
    release_mapped_pages(tensor)
    assert torch.equal(tensor, torch.arange(ELEMENTS, dtype=torch.float32))
