"""End the console script without a traceback if Ctrl-C comes while Python imports it.

The package is imported before `cli.main` runs, which takes a part of the first 0.3 s. A traceback
of the interpreter itself, from its start or from the script's own imports, cannot be avoided here.
"""

import signal
import sys
import threading

_SCRIPT, _MODULE = "coreai-torch", "coreai_torch.cli"


def is_console_script() -> bool:
    """Return whether this process runs `coreai-torch` or `python -m coreai_torch.cli`."""
    name = sys.argv[0].replace("\\", "/").rpartition("/")[2] if sys.argv else ""
    if name == "-m":  # replaced by the path of the module once that is found
        return sys.orig_argv[1:3] == ["-m", _MODULE]
    return name.removesuffix(".exe").removesuffix("-script.py") == _SCRIPT


def end_on_interruption() -> bool:
    """Let Ctrl-C end the process silently; return whether it raised KeyboardInterrupt before.

    A background job ignores Ctrl-C, and only the main thread may change that.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return True


if is_console_script():
    end_on_interruption()
