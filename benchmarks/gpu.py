"""Convert a decoder with random weights and run its program on a GPU beside eager torch.

    python -m benchmarks.gpu --size 7b --dtype float16 --json gpu.json

The model is a `LlamaForCausalLM` with the sizes of Llama 2 7B and random weights, made on the GPU.
It is converted with all its layers, by `coreai_torch.llm.convert`, and saved; `to_torch` reads the
asset, moves it to the GPU and runs `prefill` and `decode`. The logits are compared with eager torch
on the GPU in the same dtype, and both with eager torch in float32. `--verify` also runs
`coreai_torch.verify(device=...)` on the model without a cache. `--device cpu --size tiny` is a dry
run. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers

import coreai_torch
from coreai_torch import llm
from coreai_torch.interpreter.devices import full_precision
from coreai_torch.verification import TrialPlan

SIZES = {
    "7b": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    },
}
DTYPES = ("float16", "bfloat16", "float32")


class Stopwatch:
    """Seconds and peak GPU memory of each named stage, printed as they end."""

    def __init__(self, device):
        self.device, self.figures = device, {}

    @contextmanager
    def __call__(self, name):
        self._reset()
        began = time.perf_counter()
        yield
        self._wait()
        figure = {"seconds": round(time.perf_counter() - began, 3)}
        if self.device.type == "cuda":
            figure["peak_gpu_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        self.figures[name] = figure
        print(f"{name}: {figure}", file=sys.stderr, flush=True)

    def _reset(self):
        self._wait()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def make_model(size, dtype, device, length):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SIZES[size],
        max_position_embeddings=max(length, 128),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = transformers.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.to(dtype).eval()


def eager_logits(model, tokens, prompt):
    """Return the logits after the prompt, and after each later token, with transformers' cache."""
    with torch.no_grad():
        output = model(input_ids=tokens[:, :prompt], use_cache=True)
        logits = [output.logits[:, -1].float()]
        for token in tokens[:, prompt:].split(1, 1):
            output = model(input_ids=token, past_key_values=output.past_key_values, use_cache=True)
            logits.append(output.logits[:, -1].float())
    return torch.cat(logits)


def program_logits(module, tokens, prompt):
    prefill, decode = module.function("prefill"), module.function("decode")
    logits = [prefill({"input_ids": tokens[:, :prompt], "position": torch.tensor([0])})["logits"]]
    for position in range(prompt, tokens.shape[1]):
        feeds = {"input_ids": tokens[:, position : position + 1]}
        logits.append(decode({**feeds, "position": torch.tensor([position])})["logits"])
    return torch.cat(logits).float()


def compared(got, want):
    error = (got.double() - want.double()).abs()
    return {
        "largest_error": float(error.max()),
        "relative_to_largest": float(error.max() / want.abs().max()),
        "mean_error": float(error.mean()),
        "same_argmax": float((got.argmax(-1) == want.argmax(-1)).double().mean()),
    }


class Logits(torch.nn.Module):
    """The model without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


def verified(model, tokens, device):
    """Return the verdict of `verify` on the device, as figures."""
    verdict = coreai_torch.verify(
        Logits(model),
        None,
        (tokens,),
        device=str(device),
        locate=False,
        trials=TrialPlan(seeds=1, sizes=0, edges=False),
    )
    (worst,) = verdict.worst().values()
    return {
        "ok": verdict.ok,
        "calls": len(verdict.trials),
        "seconds": round(verdict.seconds, 2),
        "relative_error": worst.max_rel,
        "notes": list(verdict.notes),
    }


def measure(options, stopwatch, found):
    """Fill in the figures, stage by stage, so that those before a failure are kept."""
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    tokens = torch.randint(
        0, SIZES[options.size]["vocab_size"], (1, options.prompt + options.steps)
    )
    with stopwatch("make the model"):
        model = make_model(options.size, dtype, device, options.cache)
    found["parameters"] = sum(p.numel() for p in model.parameters())
    there = tokens.to(device)
    with full_precision(device):
        eager_logits(model, there, options.prompt)  # warm up
        with stopwatch("eager: prefill and decode"):
            eager = eager_logits(model, there, options.prompt)
        with stopwatch("eager in float32"):
            wide = eager_logits(model.float(), there, options.prompt)
    model = model.to(dtype)
    with stopwatch("copy the model to the CPU"):
        model = model.cpu()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "decoder.aimodel"
        with stopwatch("export, convert and optimize"):
            program = llm.convert(model, options.cache, verify=False, turn_weights=False)
        with stopwatch("save"):
            program.save_asset(path)
        del program
        found["asset_gib"] = round(sum(f.stat().st_size for f in path.iterdir()) / 2**30, 2)
        with stopwatch("read the asset"):
            module = coreai_torch.to_torch(path)
        with stopwatch("move the program to the device"):
            module.to(device)
        with stopwatch("program: first call"):
            program_logits(module, tokens, options.prompt)
        module.reset()
        with stopwatch("program: prefill and decode"):
            got = program_logits(module, tokens, options.prompt)
        del module
    found["program_against_eager"] = compared(got, eager)
    found["program_against_float32"] = compared(got, wide)
    found["eager_against_float32"] = compared(eager, wide)
    del got, eager, wide
    if options.verify:
        with stopwatch("verify(device)"):
            found["verify"] = verified(model, tokens[:, : options.prompt], device)


def versions(device):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip() or "unknown",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="7b")
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--steps", type=int, default=8, help="tokens decoded after it")
    parser.add_argument("--cache", type=int, default=128, help="size of the cache in tokens")
    parser.add_argument("--folder", help="where to save the asset; it is removed afterwards")
    parser.add_argument("--verify", action="store_true", help="run verify(device) as well")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    stopwatch = Stopwatch(torch.device(options.device))
    found = {"size": options.size, "dtype": options.dtype, **versions(options.device)}
    for name in ("prompt", "steps", "cache"):
        found[name] = getattr(options, name)
    free = shutil.disk_usage(options.folder or tempfile.gettempdir()).free
    found["free_disk_gib"] = round(free / 2**30, 1)
    try:
        measure(options, stopwatch, found)
    except Exception as error:
        traceback.print_exc()
        found["problem"] = f"{type(error).__name__}: {error}"[:400]
    found["stages"] = stopwatch.figures
    found["peak_cpu_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    text = json.dumps(found)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return "problem" in found


if __name__ == "__main__":
    sys.exit(main())
