"""Yield generated text while a thread generates it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .prompts import cut_at


def stream_text(
    run: Callable[..., None], tokenizer: Any, stop: str | Sequence[str]
) -> Iterator[str]:
    """Call `run(streamer=..., stopping_criteria=...)` in a thread and yield the text it makes.

    An exception of `run` is raised after the text before it. The thread stops at the next token
    if the caller stops reading.
    """
    from transformers import StoppingCriteriaList, TextIteratorStreamer

    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    abandoned = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            criteria = StoppingCriteriaList([_until(abandoned)])
            run(streamer=streamer, stopping_criteria=criteria)
        except BaseException as error:
            errors.append(error)
            streamer.on_finalized_text("", stream_end=True)

    def pieces() -> Iterator[str]:
        thread = threading.Thread(target=work, name="coreai-stream", daemon=True)
        thread.start()
        try:
            yield from before_stop(streamer, stop)
        finally:
            abandoned.set()
            thread.join()
        if errors:
            raise errors[0]

    return pieces()


def _until(event: threading.Event) -> Callable[..., Any]:
    """Return a stopping criterion that ends all rows once the event is set."""
    import torch

    def stopped(input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), event.is_set(), dtype=torch.bool)

    return stopped


def before_stop(pieces: Iterable[str], stop: str | Sequence[str]) -> Iterator[str]:
    """Yield text up to the first stop text; hold back what may be the start of one."""
    stops = [one for one in ([stop] if isinstance(stop, str) else stop) if one]
    pending = ""
    for piece in pieces:
        pending += piece
        text = cut_at(pending, stops)
        if len(text) < len(pending):
            if text:
                yield text
            return
        kept = max((_overlap(pending, one) for one in stops), default=0)
        text, pending = pending[: len(pending) - kept], pending[len(pending) - kept :]
        if text:
            yield text
    if pending:
        yield pending


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that a stop text starts with."""
    return next((n for n in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:n])), 0)
