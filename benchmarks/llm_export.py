"""Export a decoder with random weights from a memory-mapped file; measure memory and time.

    python -m benchmarks.llm_export --size 1b --compression none 4bit

The folder of the model is written first, one tensor after another. Each export runs in a child
process; its peak memory is that of anonymous pages, without pages of mapped files. The limit is
1.15 times the weights and 1 GB. The time is compared with reading the file once. Results are added
to `llm_export.json`; `--no-save` prints them only.
"""

from __future__ import annotations

import argparse
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
    "7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36, "heads": 32},
}
VOCABULARY = {"tiny": 512}
FILE_BYTES = 2 << 30  # tensors are written to files of about this size


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
    """Write a folder as `save_pretrained` does, with at most one file in memory."""
    import torch
    from safetensors.torch import save_file
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
    index, part, held, number = {}, {}, 0, 0
    generator = torch.Generator().manual_seed(0)
    for position, (name, shape) in enumerate(shapes.items()):
        tensor = torch.empty(shape, dtype=torch.float16).normal_(0, 0.02, generator=generator)
        part[name] = tensor + 1 if name.endswith("norm.weight") else tensor
        held += tensor.nbytes
        if held > FILE_BYTES or position == len(shapes) - 1:
            number += 1
            path = f"model-{number:05}.safetensors"
            save_file(part, folder / path, {"format": "pt"})
            index |= dict.fromkeys(part, path)
            part, held = {}, 0
    total = sum(2 * shape.numel() for shape in shapes.values())
    content = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))
    return total


def read_seconds(folder):
    """Return the time to read the weights from the disk once, without the page cache."""
    began = time.perf_counter()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(1 << 24):
                pass
    return time.perf_counter() - began


def anonymous_bytes():
    """Return the memory of this process without pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith("kB")}
    return 1024 * (int(fields["RssAnon"]) + int(fields["RssShmem"]))


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
            self.peaks[self.stage] = max(self.peaks.get(self.stage, 0), anonymous_bytes())

    def enter(self, stage):
        """Start the next stage."""
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0) + now - self._began
        self._began, self.stage = now, stage

    def end(self):
        """Stop sampling."""
        self.enter("")
        self._ended.set()
        self._thread.join()


def child(folder, output, compression):
    """Export in this process and print the figures."""
    from coreai_torch import llm

    base = anonymous_bytes()
    peaks = Peaks()
    watch_stages(peaks)
    began = time.perf_counter()
    llm.export(folder, output, compression=compression, verify=False, overwrite=True)
    seconds = time.perf_counter() - began
    peaks.end()
    written = sum(one.stat().st_size for one in Path(output).rglob("*") if one.is_file())
    figures = {
        "seconds": round(seconds, 1),
        "peak_bytes": max(peaks.peaks.values()),
        "libraries_bytes": base,
        "bundle_bytes": written,
        "stages": {
            name: {"seconds": round(peaks.seconds.get(name, 0), 1), "peak_bytes": peak}
            for name, peak in peaks.peaks.items()
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


def measure(folder, size, compression, weights):
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
        "commit": commit(),
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
        "coreai": metadata.version("coreai-core"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def save(result):
    """Add a result to the file, in place of an older one of the same kind."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    kind = (result["size"], result["compression"])
    kept = [one for one in known if (one["size"], one["compression"]) != kind]
    RESULTS.write_text(json.dumps([*kept, result], indent=1) + "\n")


def main():
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["500m"])
    parser.add_argument("--compression", nargs="+", default=["none", "4bit"])
    parser.add_argument("--folder", type=Path, help="where models are kept; by default removed")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.output, given.compression[0])
        return
    with tempfile.TemporaryDirectory() as scratch:
        for size in given.size:
            folder = (given.folder or Path(scratch)) / size
            folder.mkdir(parents=True, exist_ok=True)
            index = folder / "model.safetensors.index.json"
            if index.exists():
                weights = json.loads(index.read_text())["metadata"]["total_size"]
            else:
                weights = write_model(folder, size)
            for compression in given.compression:
                result = measure(folder, size, compression, weights)
                print(json.dumps(result), flush=True)
                if not given.no_save:
                    save(result)


if __name__ == "__main__":
    main()
