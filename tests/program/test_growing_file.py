"""The hash of a file that another process writes is the hash of the whole file."""

from __future__ import annotations

import hashlib
import threading
import time

from coreai_torch.asset.resources import GrowingFile

PARTS = [bytes([number]) * 300_000 for number in range(8)]


def test_a_file_is_hashed_while_it_grows(tmp_path):
    path = tmp_path / "bytecode"
    file = GrowingFile(path)
    file.start()

    def write():
        with open(path, "wb", buffering=0) as opened:
            for part in PARTS:
                opened.write(part)
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    assert file.digest() == hashlib.sha256(b"".join(PARTS)).digest()


def test_a_failed_read_is_repeated(tmp_path, monkeypatch):
    path = tmp_path / "bytecode"
    path.write_bytes(PARTS[1])

    def fail(self, file):
        raise OSError("Input/output error")

    monkeypatch.setattr(GrowingFile, "_hash_to_end", fail)
    file = GrowingFile(path)
    file.start()
    assert file.digest() == hashlib.sha256(PARTS[1]).digest()


def test_a_file_that_never_appears_ends_the_thread(tmp_path):
    file = GrowingFile(tmp_path / "bytecode")
    file.start()
    file.stop()
    assert not file._thread.is_alive()
