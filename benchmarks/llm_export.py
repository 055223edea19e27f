"""Export a decoder with random weights from a memory-mapped file; measure memory and time.

    python -m benchmarks.llm_export --size 500m 1b 2b --compression none 4bit
    python -m benchmarks.llm_export --size 7b --compression none 4bit

The folder of the model is written first, one chunk after another. Each export runs in a child
process that samples its memory: `peak_bytes` are all resident pages, with those of mapped files,
and `peak_anonymous_bytes` are those that the system cannot drop. The limit is 1.15 times the
weights and 1 GB. `seconds` starts after the libraries are imported, and `reads` is its ratio to
reading the file once without the page cache. Results are added to `llm_export.json`; `--no-save`
prints them only, and `--slope` prints the bytes of memory for each byte of weights between sizes.
The sizes `7b-2`, `7b-4` and `7b-8` have so many of the layers of `7b`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).with_suffix(".json")
COMMON = {"num_key_value_heads": 8, "max_position_embeddings": 2048, "tie_word_embeddings": False}
SIZES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "heads": 8},
    "300m": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 19, "heads": 16},
    "500m": {"hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16, "heads": 16},
    "1b": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 20, "heads": 16},
    "2b": {"hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 28, "heads": 20},
    "7b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "heads": 32},
}
# The first layers of the largest one: exports take time for each layer, memory for each weight.
SIZES |= {f"7b-{count}": {**SIZES["7b"], "num_hidden_layers": count} for count in (2, 4, 8)}
VOCABULARY = {"tiny": 512}
FILE_BYTES = 4 << 30  # tensors are written to files of about this size
RANDOM = 1 << 24  # random numbers; each tensor starts at another one


def config_of(size):
    """Return the configuration of a Llama of about this many weights."""
    from transformers import LlamaConfig

    sizes = dict(SIZES[size])
    return LlamaConfig(
        vocab_size=VOCABULARY.get(size, 32000),
        num_attention_heads=sizes.pop("heads"),
        dtype="float16",
        bos_token_id=None,
        eos_token_id=1,
        **COMMON,
        **sizes,
    )


def write_model(folder, size):
    """Write a folder as `save_pretrained` does; return the bytes of its weights."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    config = config_of(size)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    GenerationConfig(eos_token_id=1).save_pretrained(folder)
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>"))
    PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: one.shape for name, one in LlamaForCausalLM(config).named_parameters()}
    numbers = torch.randn(RANDOM, generator=torch.Generator().manual_seed(0))
    numbers = (numbers * 0.02).half().numpy()
    index, start = {}, 0
    for number, part in enumerate(parts_of(shapes)):
        path = f"model-{number:05}.safetensors"
        start = write_file(folder / path, {name: shapes[name] for name in part}, numbers, start)
        index |= dict.fromkeys(part, path)
    total = sum(2 * shape.numel() for shape in shapes.values())
    content = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))
    return total


def parts_of(shapes):
    """Yield the names of the tensors of each file."""
    part, size = [], 0
    for name, shape in shapes.items():
        part.append(name)
        size += 2 * shape.numel()
        if size > FILE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def write_file(path, shapes, numbers, start):
    """Write tensors of random numbers in the safetensors format; return the next start."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * shape.numel()
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            count, start = shape.numel(), (start + 7919) % RANDOM
            if name.endswith("norm.weight"):
                file.write((numbers[:count] + 1).tobytes())
                continue
            position = start
            while count:
                piece = numbers[position : position + count]
                file.write(piece.data)
                count, position = count - len(piece), 0
    return start


def read_seconds(folder):
    """Return the time to read the weights from the disk once, without the page cache."""
    began = time.perf_counter()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(1 << 24):
                pass
    return time.perf_counter() - began


def memory():
    """Return the memory of this process: all resident bytes, and those of no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith("kB")}
    anonymous = int(fields["RssAnon"]) + int(fields["RssShmem"])
    return 1024 * (anonymous + int(fields["RssFile"])), 1024 * anonymous


class Peaks:
    """Samples the memory of this process, and its peak in each stage."""

    def __init__(self):
        self.stage, self.peaks, self.seconds = "starting", {}, {}
        self._began = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self):
        while not self._ended.wait(0.01):
            known = self.peaks.get(self.stage, (0, 0))
            self.peaks[self.stage] = tuple(map(max, known, memory()))

    def enter(self, stage):
        """Start the next stage."""
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0) + now - self._began
        self._began, self.stage = now, stage

    def end(self):
        """Stop sampling."""
        self._ended.set()
        self._thread.join()
        self.enter("")


def child(folder, output, compression):
    """Export in this process and print the figures."""
    from coreai_torch import llm

    libraries = memory()
    peaks = Peaks()
    watch_stages(peaks)
    began, processor = time.perf_counter(), time.process_time()
    llm.export(folder, output, compression=compression, verify=False, overwrite=True)
    seconds = time.perf_counter() - began
    peaks.end()
    written = sum(one.stat().st_size for one in Path(output).rglob("*") if one.is_file())
    figures = {
        "seconds": round(seconds, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "peak_bytes": max(peak for peak, _ in peaks.peaks.values()),
        "peak_anonymous_bytes": max(peak for _, peak in peaks.peaks.values()),
        "libraries_bytes": libraries[0],
        "bundle_bytes": written,
        "stages": {
            name: {
                "seconds": round(peaks.seconds.get(name, 0), 1),
                "peak_bytes": peak,
                "peak_anonymous_bytes": anonymous,
            }
            for name, (peak, anonymous) in peaks.peaks.items()
        },
    }
    print(json.dumps(figures))


def watch_stages(peaks):
    """Let the stages of the export tell their names."""
    from contextlib import contextmanager

    from coreai_torch.llm.bundle import exporting

    original = exporting.stages

    @contextmanager
    def stages():
        with original() as stage:

            @contextmanager
            def watched(name, **options):
                peaks.enter(name)
                with stage(name, **options):
                    yield

            yield watched

    exporting.stages = stages


def commit():
    """Return the commit of this checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=RESULTS.parent
    ).stdout.strip()


def measure(folder, size, compression, weights, revision):
    """Export in a child process; return its figures beside the limits."""
    read = read_seconds(folder)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        command = [sys.executable, "-m", "benchmarks.llm_export", "--child", str(folder)]
        command += ["--output", f"{scratch}/bundle", "--compression", compression]
        result = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(result.stderr[-2000:])
    figures = json.loads(lines[-1])
    return {
        "size": size,
        "compression": compression,
        "weight_bytes": weights,
        "limit_bytes": int(weights * 1.15 + 1e9),
        "read_seconds": round(read, 2),
        "reads": round(figures["seconds"] / read, 1),
        **figures,
        "is_within_limit": figures["peak_bytes"] <= int(weights * 1.15 + 1e9),
        "commit": revision or commit(),
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
        "coreai": metadata.version("coreai-core"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def save(result, path):
    """Add a result to the file, in place of an older one of the same kind."""
    known = json.loads(path.read_text()) if path.exists() else []
    kind = (result["size"], result["compression"])
    kept = [one for one in known if (one["size"], one["compression"]) != kind]
    path.write_text(json.dumps([*kept, result], indent=1) + "\n")


def print_slopes(path):
    """Print the bytes of memory for each byte of weights, between the sizes of a file."""
    by_compression = {}
    for one in sorted(json.loads(path.read_text()), key=lambda one: one["weight_bytes"]):
        by_compression.setdefault(one["compression"], []).append(one)
    for compression, sizes in by_compression.items():
        for small, large in itertools.pairwise(sizes):
            more = large["weight_bytes"] - small["weight_bytes"]
            slopes = [
                f"{(large[name] - small[name]) / more:.2f}"
                for name in ("peak_bytes", "peak_anonymous_bytes")
            ]
            print(compression, small["size"], large["size"], *slopes)


def main():
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["500m"])
    parser.add_argument("--compression", nargs="+", default=["none", "4bit"])
    parser.add_argument("--folder", type=Path, help="where models are kept; by default removed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to add to")
    parser.add_argument("--commit", help="by default that of this checkout")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--slope", action="store_true", help="only print slopes of the results")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.slope:
        print_slopes(given.results)
    elif given.child:
        child(given.child, given.output, given.compression[0])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            measure_sizes(given, given.folder or Path(scratch))


def measure_sizes(given, models):
    """Write the model of each size and measure its exports."""
    for size in given.size:
        folder = models / size
        folder.mkdir(parents=True, exist_ok=True)
        index = folder / "model.safetensors.index.json"
        if index.exists():
            weights = json.loads(index.read_text())["metadata"]["total_size"]
        else:
            weights = write_model(folder, size)
        for compression in given.compression:
            result = measure(folder, size, compression, weights, given.commit)
            print(json.dumps(result), flush=True)
            if not given.no_save:
                save(result, given.results)


if __name__ == "__main__":
    main()
