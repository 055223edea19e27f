"""Measure the time of a decoded token: bundles beside `llm.convert` and the model in torch.

    python -m benchmarks.llm_decode

The model is a Llama with 28 million weights. A bundle runs as `llm.load` loads it, and as it is
written. All ways run in this process, by turns, so that other work on the machine slows them alike.
For each, `ms` is the least time of a token over the turns and `processor_ms` the least processor
time, in all threads. Results are stored in `llm_decode.json`; `--no-save` prints them only.
`--page` writes the stored results to docs/language-models.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from importlib import metadata
from pathlib import Path

from .llm_export import commit

RESULTS = Path(__file__).with_suffix(".json")
TOKENS = 32  # after each prompt
PAGE = Path(__file__).parents[1] / "docs" / "language-models.md"
START = "<!-- decode: python -m benchmarks.llm_decode --page -->"
END = "<!-- end of decode -->"


def build(dtype):
    """Return a Llama with 28 million weights, and a tokenizer."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    return LlamaForCausalLM(config).to(getattr(torch, dtype)).eval(), tokenizer


def steps_of_bundle(model, tokenizer, folder, compression="none"):
    """Return functions that decode after a prompt with a bundle: as loaded, and as written."""
    from coreai_torch import llm
    from coreai_torch.llm.bundle.opening import fast_loading, open_bundle
    from coreai_torch.llm.bundle.runtime import Sequence

    path = Path(folder) / f"bundle_{compression}"
    llm.export(model, path, tokenizer=tokenizer, compression=compression, verify=False)

    def steps(load):
        sequence = Sequence(open_bundle(path, load=load))

        def run(tokens):
            sequence.rewind(0)
            sequence.append(tokens[:-TOKENS])
            return (lambda one=one: sequence.append(one) for one in tokens[-TOKENS:].split(1))

        return run

    return {"llm.load": steps(fast_loading(None)), "as written": steps(None)}


def steps_of_program(model):
    """Return a function that decodes after a prompt with a program of `llm.convert`."""
    from coreai_torch import llm

    generator = llm.Generator(llm.convert(model, 256, verify=False))

    def run(tokens):
        stream = generator.stream(tokens[None, :-TOKENS], TOKENS + 1)
        next(stream)
        return (lambda: next(stream) for _ in range(TOKENS))

    return run


def steps_of_torch(model):
    """Return a function that decodes after a prompt in torch."""
    import torch

    def run(tokens):
        with torch.no_grad():
            cache = model(tokens[None, :-TOKENS], use_cache=True).past_key_values

        def step(one):
            with torch.no_grad():
                model(one[None], past_key_values=cache, use_cache=True)

        return (lambda one=one: step(one) for one in tokens[-TOKENS:].split(1))

    return run


def ways(model, tokenizer, folder):
    """Return the ways to decode, each a function of prompt and tokens."""
    plain = steps_of_bundle(model, tokenizer, folder)
    four = steps_of_bundle(model, tokenizer, folder, "4bit")
    return {
        **{f"bundle, {way}": run for way, run in plain.items()},
        **{f"4bit bundle, {way}": run for way, run in four.items()},
        "llm.convert": steps_of_program(model),
        "eager": steps_of_torch(model),
    }


def measure(runs, prompt, turns):
    """Return the least time of a token for each way to decode, over several turns."""
    import torch

    tokens = torch.randint(2, 4096, (prompt + TOKENS,), generator=torch.Generator().manual_seed(0))
    least = {name: [float("inf")] * 2 for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            for step in run(tokens):
                wall, processor = time.perf_counter(), time.process_time()
                step()
                spent = time.perf_counter() - wall, time.process_time() - processor
                least[name] = list(map(min, least[name], spent))
    return {
        name: {"ms": round(1000 * wall, 2), "processor_ms": round(1000 * processor, 2)}
        for name, (wall, processor) in least.items()
    }


def page_with_table(text, rows):
    """Return the page with a table of the results between its markers."""
    names = [name for name, value in rows[0].items() if isinstance(value, dict)]
    cells = [
        ["", *(f"after {row['prompt']} tokens" for row in rows)],
        ["---"] * (len(rows) + 1),
        *([name, *(str(row[name]["ms"]) for row in rows)] for name in names),
    ]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    return "".join([before, start, "\n\n", "\n".join(lines), "\n\n", end, after])


def main():
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", choices=("float32", "float16"), nargs="+", default=["float32"])
    parser.add_argument("--prompt", type=int, nargs="+", default=[16, 220], help="lengths")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--commit", help="by default that of this checkout")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the stored results to the docs")
    given = parser.parse_args()
    if given.page:
        rows = json.loads(given.results.read_text())
        PAGE.write_text(page_with_table(PAGE.read_text(), rows))
        return
    found = []
    for dtype in given.dtype:
        model, tokenizer = build(dtype)
        with tempfile.TemporaryDirectory() as folder:
            runs = ways(model, tokenizer, folder)
            for prompt in given.prompt:
                result = {
                    "dtype": dtype,
                    "weights": sum(one.numel() for one in model.parameters()),
                    "prompt": prompt,
                    **measure(runs, prompt, given.turns),
                    "commit": given.commit or commit(),
                    "torch": metadata.version("torch"),
                    "transformers": metadata.version("transformers"),
                    "coreai": metadata.version("coreai-core"),
                    "python": platform.python_version(),
                    "cores": os.cpu_count(),
                }
                print(json.dumps(result), flush=True)
                found.append(result)
    if not given.no_save:
        given.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
