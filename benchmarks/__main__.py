"""Runs all benchmarks, or those named on the command line."""

import importlib
import sys

ALL = ("linear",)

for name in sys.argv[1:] or ALL:
    importlib.import_module(f"benchmarks.{name}").main()
