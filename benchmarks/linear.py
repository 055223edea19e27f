"""Is conversion linear in the number of nodes? 20,000 ops against 10,000, best of several."""

import time

from rich.console import Console
from rich.table import Table

from benchmarks.chain import exported_chain
from coreai_torch import TorchConverter

LENGTHS = (5_000, 10_000, 20_000)
BAR = 2.2  # times the time for half as many ops


def _seconds(length, repeats=5):
    program = exported_chain(length)
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        TorchConverter().add_exported_program(program).to_coreai()
        best = min(best, time.process_time() - started)
    return best


def main():
    _seconds(1_000)  # warms caches up
    table = Table("ops", "CPU seconds", "µs a node", "times the half", title="linear conversion")
    previous = None
    for length in LENGTHS:
        taken = _seconds(length)
        ratio = f"{taken / previous:.2f}" if previous else ""
        table.add_row(f"{length:,}", f"{taken:.2f}", f"{taken / length * 1e6:.0f}", ratio)
        previous, last = taken, taken / previous if previous else 0.0
    console = Console()
    console.print(table)
    console.print("holds" if last <= BAR else "does not hold", f"(bar {BAR})")
