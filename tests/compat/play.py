"""Run the programs of one seed document in order, in one namespace, in a child process.

`python -m compat.play DOCUMENT RECORD` appends one JSON line to RECORD for each block, and
continues after a block that fails, so that each block has a result. It needs a child process
because two documents define the torch op `my_lib::scaled_add`, which a process can do only once,
and because a native crash must not end the test run.
"""

import ast
import asyncio
import atexit
import contextlib
import inspect
import io
import json
import sys
import time
import traceback
import types
from pathlib import Path

from compat.documents import Block, blocks
from compat.presets import PRESETS

# A thread of the runtime can abort the process if the interpreter ends right after a call.
atexit.register(time.sleep, 0.1)


def compiled(block: Block) -> types.CodeType:
    # Leading empty lines make a traceback show the line of the markdown file.
    source = "\n" * (block.line - 1) + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(source, str(block.path), "exec", flags=flags, dont_inherit=True)


def execute(block: Block, namespace: dict[str, object]) -> None:
    code = compiled(block)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(types.FunctionType(code, namespace)())
    else:
        exec(code, namespace)


def play(document: str, record: Path) -> None:
    module = types.ModuleType(document)
    sys.modules[document] = module
    vars(module).update(PRESETS[document]())
    for block in blocks(document):
        printed, error = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                execute(block, vars(module))
        except Exception:
            error = traceback.format_exc()
        with record.open("a") as lines:
            lines.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")


if __name__ == "__main__":
    play(sys.argv[1], Path(sys.argv[2]))
