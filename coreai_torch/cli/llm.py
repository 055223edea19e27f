"""`coreai-torch llm`: export, check and run language models."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import llm_running
from .console import Json, answer, size
from .llm_running import Bundle, Expand

HELP = """Export, check and run language models.

\b
  coreai-torch llm export   Qwen3-0.6B/ -o qwen3_0_6b
  coreai-torch llm check    qwen3_0_6b --model Qwen3-0.6B/
  coreai-torch llm chat     qwen3_0_6b
  coreai-torch llm generate qwen3_0_6b "Once upon a time" -n 64
  coreai-torch llm bench    qwen3_0_6b
  coreai-torch llm eval     qwen3_0_6b --text wiki.txt --model Qwen3-0.6B/
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

for _name, _help in (
    ("generate", llm_running.GENERATE),
    ("chat", llm_running.CHAT),
    ("bench", llm_running.BENCH),
):
    app.command(_name, help=_help, no_args_is_help=True)(getattr(llm_running, _name))


class Dtype(StrEnum):
    """The dtype of weights and cache."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Target(StrEnum):
    """The device that a bundle is made for."""

    GPU = "gpu"
    NEURAL_ENGINE = "neural_engine"


class Cache(StrEnum):
    """How keys and values are stored."""

    FLOAT = "float"
    INT8 = "int8"


class CheckedBy(StrEnum):
    """The engine that runs a bundle."""

    AUTO = "auto"
    RUNTIME = "runtime"
    TORCH = "torch"


class RunBy(StrEnum):
    """The engine that runs a bundle."""

    RUNTIME = "runtime"
    TORCH = "torch"


_EXPORT = """Write a bundle for Apple's language-model engine from the folder of a model.

\b
  coreai-torch llm export Qwen3-0.6B/ -o qwen3_0_6b
  coreai-torch llm export Qwen3-0.6B/ -o qwen3_0_6b --dtype float16 --max-context-length 8192
  coreai-torch llm export Qwen3-0.6B/ -o qwen3_4bit --compression 4bit
  coreai-torch llm export Qwen3-0.6B/ -o qwen3_static --target neural_engine

The bundle contains metadata.json, the .aimodel and the tokenizer.
"""


@app.command("export", help=_EXPORT, no_args_is_help=True)
def export(
    model: Annotated[Path, typer.Argument(help="A folder that save_pretrained wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="The folder of the tokenizer; by default the model's.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The bundle's name; by default that of the folder.")
    ] = None,
    max_context_length: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of prompt and output; by default the model's positions."),
    ] = None,
    dtype: Annotated[
        Dtype | None, typer.Option(help="Dtype of the weights; by default as stored.")
    ] = None,
    compression: Annotated[
        str, typer.Option(help="4bit, 8bit, mixed, none, or a YAML file of coreai-opt.")
    ] = "none",
    target: Annotated[
        Target, typer.Option(help="neural_engine writes functions with static shapes.")
    ] = Target.GPU,
    kv_cache: Annotated[
        Cache, typer.Option(help="int8 halves the cache; the default (pipelined) engine runs it.")
    ] = Cache.FLOAT,
    verify: Annotated[bool, typer.Option(help="Compare the bundle with the model.")] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", "--force", help="Replace an existing bundle.")
    ] = False,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of images, if the model takes any.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a bundle."""
    from ..llm import export as export_bundle

    bundle = export_bundle(
        model,
        output,
        tokenizer=tokenizer,
        name=name,
        max_context_length=max_context_length,
        dtype=None if dtype is None else dtype.value,
        compression=compression,
        target=target.value,
        kv_cache=kv_cache.value,
        verify=verify,
        overwrite=overwrite,
        image_size=image_size,
    )
    written = sum(one.stat().st_size for one in bundle.rglob("*") if one.is_file())
    data = {"bundle": str(bundle), "bytes": written, "verified": verify}
    answer(data, f"{bundle}  {size(written)}", as_json=as_json, ok=True)


_CHECK = """Check that the engine can run a bundle; exit with code 1 if a step fails.

\b
  coreai-torch llm check qwen3_0_6b
  coreai-torch llm check qwen3_0_6b --model Qwen3-0.6B/

Ten steps emulate the engine on the runtime of this machine: folder, tokenizer and stop tokens,
descriptors, decoding at 256 slots, growth, chunks, unused slots, rewinding, warm-up, and more slots
than the context. With --model, the logits are compared with transformers.
"""


@app.command("check", help=_CHECK, no_args_is_help=True)
def check(
    bundle: Bundle,
    model: Annotated[
        Path | None, typer.Option(help="The folder of the model to compare with.")
    ] = None,
    engine: Annotated[
        CheckedBy, typer.Option(help="The engine; auto is torch for float16, else the runtime.")
    ] = CheckedBy.AUTO,
    device: Annotated[str, typer.Option(help="The device of torch, such as cuda.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Check a bundle."""
    from ..llm import check as check_bundle

    report = check_bundle(bundle, model, engine=engine.value, device=device)
    answer(report.as_dict(), str(report), as_json=as_json, ok=report.ok)


_EVAL = """Measure perplexity and multiple-choice accuracy of a bundle.

\b
  coreai-torch llm eval qwen3_4bit --text wiki.txt --model Qwen3-0.6B/
  coreai-torch llm eval qwen3_4bit --task questions.jsonl --resume results.jsonl
  coreai-torch llm eval qwen3_4bit --task arc.yaml --engine torch --device cuda

With --model, the same is measured in torch, so that the change by conversion and the change by
compression are shown apart. --resume stores each result and continues an interrupted run.
"""


@app.command("eval", help=_EVAL, no_args_is_help=True)
def evaluate(
    bundle: Bundle,
    text: Annotated[Path | None, typer.Option(help="A text file for the perplexity.")] = None,
    task: Annotated[
        list[Path] | None,
        typer.Option(help="A .jsonl file, or a .yaml task of the harness; may be repeated."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="The folder of the uncompressed model.")
    ] = None,
    engine: Annotated[RunBy, typer.Option(help="The engine that runs the bundle.")] = RunBy.RUNTIME,
    device: Annotated[str, typer.Option(help="The device of torch, such as cuda.")] = "cpu",
    window: Annotated[int, typer.Option(min=2, help="Tokens that are scored together.")] = 512,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Windows, and questions of each task.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="A file that stores the results.")] = None,
    expand_weights: Expand = None,
    as_json: Json = False,
) -> None:
    """Measure a bundle."""
    from ..compression.memory import keep_freed_memory
    from ..llm import evaluate as evaluate_bundle

    keep_freed_memory()
    report = evaluate_bundle(
        bundle,
        text=text,
        tasks=task or (),
        model=model,
        engine=engine.value,
        device=device,
        window=window,
        limit=limit,
        resume=resume,
        expand_weights=expand_weights,
    )
    answer(report.as_dict(), str(report), as_json=as_json, ok=True)
