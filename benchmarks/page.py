"""Print the figures as tables and write `docs/benchmarks.md`."""

import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import verification_cost
from benchmarks.bars import MB, STEP
from benchmarks.ops.page import section_of
from tests.provenance import describe

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
STAGES = ("export", "decompose", "convert", "optimize", "save", "load", "first run")
PEERS = ("published", "onnx", "coremltools", "openvino", "executorch")

HEAD = f"""# Benchmarks

Written by `make bench`, which measures each converter on each workload in a separate process
and a separate environment. The figures of a workload come from one run
on one machine ({platform.machine()}, {{cores}} cores).
Seconds are CPU seconds, the best of several; read them as ratios. All models have random weights.

{{measured}}

"""

MEMORY = """## Memory-mapped weights

A weight is referenced where torch stores it. A weight that is mapped from a file
(`torch.load(..., mmap=True)`, safetensors) stays there: the conversion reads a few of its bytes,
and saving reads each byte once. `mapped_1gb` shows the memory that is not backed by a file. The
system can reclaim the pages of the file: in a control group of 600 MB, 1 GB of mapped weights is
converted and saved.

The binding does not allow less memory. It writes all weights in one call, so nothing can be freed
between two weights, and it takes a weight as one row-major buffer: a computed weight (a batch norm
fused into a convolution, a compressed weight, a transposed view) needs memory. If weights change in
place while a program is optimized or saved, the program is saved with the changed weights.
"""


def _seconds(row, stage):
    taken = row.get("cpu", {}).get(stage)
    return "" if taken is None else f"{taken:.2f}" if taken >= 0.1 else f"{taken:.3f}"


def stages(figures):
    """Return the time of each stage of this converter, and its memory."""
    header = ["workload", "nodes", "weights MB", *STAGES, "peak over weights MB", "disk / weights"]
    rows = []
    for workload, by_converter in figures.items():
        row = by_converter["ours"]
        if "problem" in row:
            rows.append([workload, row["problem"], *[""] * (len(header) - 2)])
            continue
        over = (row["peak"] - row["libraries"] - row["weights"]) / MB
        share = row["disk_bytes"] / row["weights"] if row["weights"] > MB else None
        rows.append(
            [
                workload,
                f"{row['nodes']:,}",
                f"{row['weights'] / MB:,.0f}",
                *(_seconds(row, stage) for stage in STAGES),
                f"{over:,.0f}",
                "" if share is None else f"{share:.3f}",
            ]
        )
    return header, rows


def ratios(figures):
    """Return the convert step of the peers as a multiple of this converter's."""
    header = ["workload", "ours, s", *PEERS]
    rows = []
    for workload, by_converter in figures.items():
        ours = by_converter["ours"]
        if "problem" in ours:
            continue
        cells = []
        for peer in PEERS:
            row = by_converter.get(peer)
            if row is None:
                cells.append("")
            elif "problem" in row:
                cells.append("fails")
            else:
                cells.append(f"{row['cpu'][STEP] / ours['cpu'][STEP]:.1f} x")
        rows.append([workload, _seconds(ours, STEP), *cells])
    return header, rows


def problems(figures):
    """Return the workloads that a peer failed on, with its error."""
    rows = [
        [peer, workload, row["problem"]]
        for workload, by_converter in figures.items()
        for peer, row in by_converter.items()
        if "problem" in row
    ]
    return ["converter", "workload", "problem"], rows


def bars(judged):
    """Return each target, the measured figure, and whether it is met."""
    rows = [[bar.what, bar.found, "yes" if bar.holds else "**no**"] for bar in judged]
    return ["target", "measured", "met"], rows


def _markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _measured(figures):
    """Return a sentence for each commit that workloads were measured at, and the workloads."""
    workloads = {}
    for workload, by_converter in figures.items():
        measured = by_converter["ours"].get("measured")
        sentence = describe(measured) if measured else "Commit not recorded."
        workloads.setdefault(sentence, []).append(workload)
    return "\n\n".join(
        f"{sentence[:-1]}: {', '.join(names)}."
        if sentence
        else f"Commit not recorded: {', '.join(names)}."
        for sentence, names in workloads.items()
    )


def show(figures, judged, cores):
    """Print all tables and write the page."""
    console = Console()
    text = HEAD.format(cores=cores, measured=_measured(figures))
    parts = {
        "Cost of a conversion": stages(figures),
        "Comparison with other converters (convert step)": ratios(figures),
        "Failures": problems(figures),
        "Targets": bars(judged),
    }
    for title, (header, rows) in parts.items():
        if not rows:
            continue
        table = Table(*header, title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        text += f"## {title}\n\n{_markdown(header, rows)}\n"
    ops = section_of(PAGE.read_text())  # written by `make bench-ops`
    checks = verification_cost.stored_section()
    PAGE.write_text(text + MEMORY + (f"\n{checks}" if checks else "") + (f"\n{ops}" if ops else ""))
