"""Call one function in a child process, and return its result or raise its exception here."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from .channel import Channel
from .child import Child

_Result = TypeVar("_Result")
_LONGEST = 10_000  # characters of an exception that cannot be pickled


def call(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a function of a module in a new interpreter; raise `Ended` if that crashes."""
    with Child.spawn(f"{__name__}:answer", function, *arguments) as child:
        returned: _Result = result(child.receive())
    return returned


def answer(channel: Channel, function: Callable[..., Any], *arguments: Any) -> None:
    """Send the result of a function or its exception, which is sent as text if it must be."""
    try:
        outcome: tuple[Any, BaseException | None] = (function(*arguments), None)
        pickle.dumps(outcome)
    except BaseException as error:
        outcome = (None, _portable(error))
    channel.send(outcome)


def result(outcome: tuple[Any, BaseException | None]) -> Any:
    """Return the result that a child sent, or raise its exception."""
    value, error = outcome
    if error is not None:
        raise error
    return value


def _portable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(str(error)[:_LONGEST])
    return error
