"""`coreai-torch llm generate | chat | bench`: run a bundle on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from .console import Json, answer, size

Bundle = Annotated[
    Path, typer.Argument(help="A bundle that `llm export` wrote.", show_default=False)
]
Count: TypeAlias = Annotated[
    int | None, typer.Option("--max-new-tokens", "-n", min=1, help="Tokens to generate; 512.")
]
Temperature: TypeAlias = Annotated[
    float | None, typer.Option(min=0.0, help="Sample with this temperature; 0 is greedy.")
]
TopK: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Sample from this many tokens.")]
TopP: TypeAlias = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Sample from this total probability.")
]
MinP: TypeAlias = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Part of the largest probability.")
]
Penalty: TypeAlias = Annotated[
    float | None, typer.Option(min=0.01, help="Penalty of tokens that occurred already.")
]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Seed of the sampling.")]
Stop: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="A text at which to stop; may be repeated.")
]
Expand: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        help="Expand compressed weights when they are loaded; by default if the memory suffices.",
        show_default=False,
    ),
]

GENERATE = """Continue a prompt and print the new text as it is generated.

\b
  coreai-torch llm generate qwen3_0_6b "Once upon a time" -n 64
  coreai-torch llm generate qwen3_0_6b --file prompt.txt --temperature 0.7 --seed 1
  coreai-torch llm generate qwen3_0_6b "Summarize: ..." --prompt-cache summary.safetensors
  coreai-torch llm generate qwen2_5_vl "<|image_pad|> What is this?" --image cat.png
"""


def generate(
    bundle: Bundle,
    prompt: Annotated[str | None, typer.Argument(help="The text to continue.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, help="Read the prompt from a file.")
    ] = None,
    max_new_tokens: Count = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = None,
    seed: Seed = None,
    stop: Stop = None,
    prompt_cache: Annotated[
        Path | None, typer.Option(help="A file with the prompt's cache; written if missing.")
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(exists=True, help="An image; may be repeated.")
    ] = None,
    expand_weights: Expand = None,
    as_json: Json = False,
) -> None:
    """Continue a prompt."""
    if (prompt is None) == (file is None):
        raise typer.BadParameter("pass a prompt or --file")
    text = prompt if file is None else file.read_text("utf-8")
    from ..compression.memory import keep_freed_memory
    from ..llm import load

    keep_freed_memory()
    pieces = load(bundle, expand_weights=expand_weights).stream(
        text,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop or (),
        prompt_cache=prompt_cache,
        images=image or None,
    )
    new = _print(pieces, quiet=as_json)
    if as_json:
        answer({"prompt": text, "text": new}, "", as_json=True, ok=True)


_COMMANDS = """/reset forgets the conversation, /exit and /quit end it as an empty line does, and
/help prints this. A message that starts with // is sent with one slash."""
CHAT = """Talk to a bundle with its chat template; an empty line, /exit or Ctrl-D ends.

\b
  coreai-torch llm chat qwen3_0_6b
  coreai-torch llm chat qwen3_0_6b --system "Answer briefly." --temperature 0.7
  echo "Why is the sky blue?" | coreai-torch llm chat qwen3_0_6b --json

Each turn continues from the cache of the turns before it. /reset forgets the conversation, and
/help lists the commands.
"""


def chat(
    bundle: Bundle,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    max_new_tokens: Count = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = None,
    seed: Seed = None,
    stop: Stop = None,
    expand_weights: Expand = None,
    as_json: Json = False,
) -> None:
    """Talk to a bundle."""
    from ..compression.memory import keep_freed_memory
    from ..llm import load

    keep_freed_memory()
    model = load(bundle, expand_weights=expand_weights)
    messages: list[dict[str, Any]] = []
    if system is not None:
        messages.append({"role": "system", "content": system})
    for line in _lines(interactive=not as_json and sys.stdin.isatty()):
        if line in ("/exit", "/quit"):
            break
        if line.startswith("/") and not line.startswith("//"):
            if line == "/reset":
                messages = messages[: system is not None]
            _tell(line, quiet=as_json)
            continue
        message = line[1:] if line.startswith("//") else line
        messages.append({"role": "user", "content": message})
        pieces = model.stream_chat(
            messages,
            max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=stop or (),
        )
        messages.append({"role": "assistant", "content": _print(pieces, quiet=as_json)})
    if as_json:
        answer({"messages": messages}, "", as_json=True, ok=True)


def _tell(command: str, *, quiet: bool) -> None:
    """Answer a command of a chat."""
    known = {"/reset": "the conversation starts again", "/help": _COMMANDS}
    if not quiet:
        typer.echo(known.get(command, f"{command} is an unknown command; /help lists them"))


def _lines(*, interactive: bool) -> Iterable[str]:
    """Yield the lines of standard input up to an empty one."""
    while True:
        if interactive:
            typer.echo("> ", nl=False)
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line


def _print(pieces: Iterable[str], *, quiet: bool) -> str:
    """Print pieces as they come and return the complete text."""
    text = ""
    for piece in pieces:
        text += piece
        if not quiet:
            typer.echo(piece, nl=False)
            sys.stdout.flush()
    if not quiet:
        typer.echo("")
    return text


BENCH = """Measure the speed of a bundle on this machine; not representative of device performance.

\b
  coreai-torch llm bench qwen3_0_6b
  coreai-torch llm bench qwen3_0_6b --prompt 512 --tokens 128 --trials 5
"""


def bench(
    bundle: Bundle,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 128,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to decode.")] = 32,
    trials: Annotated[int, typer.Option(min=1, help="Measurements.")] = 3,
    expand_weights: Expand = None,
    as_json: Json = False,
) -> None:
    """Measure prompt and decoding speed."""
    from ..compression.memory import keep_freed_memory
    from ..llm.bundle.benchmark import measure

    keep_freed_memory()
    result = measure(bundle, prompt, tokens, trials, expand_weights)
    text = [
        f"{bundle}  {size(result.asset_bytes)}, loaded in {result.load_s:.2f} s",
        f"  prompt  {result.prompt_tokens_per_s:8.1f} tokens/s  ({prompt} tokens)",
        f"  decode  {result.decode_tokens_per_s:8.1f} tokens/s  "
        f"({tokens} tokens, {result.decode_ms:.2f} ms each)",
    ]
    answer(vars(result), text, as_json=as_json, ok=True)
