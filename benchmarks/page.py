"""The figures as tables: on the terminal, and as `docs/benchmarks.md`."""

import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.bars import MB, STEP

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
STAGES = ("export", "decompose", "convert", "optimize", "save", "load", "first run")
PEERS = ("published", "onnx", "coremltools", "openvino", "executorch")

HEAD = f"""# Benchmarks

Written by `make bench`, which measures each converter on each workload in a process of its own
and in an environment of its own. The figures of a workload are of one run,
on one machine ({platform.machine()}, {{cores}} cores).
Seconds are CPU seconds, best of several; read them as ratios. Every model has random weights.

"""

MEMORY = """## Weights that stay in their file

A weight is referenced where torch holds it. One that is mapped from a file
(`torch.load(..., mmap=True)`, safetensors) stays there: converting looks at a few of its bytes, and
saving reads each byte once. `mapped_1gb` shows the memory that no file backs. The pages of the file
are the system's to take back: in a control group of 600 MB, 1 GB of mapped weights is converted and
saved all the same.

The binding does not allow more. It writes all weights in one call, so nothing can be given back
between two of them by us, and it takes a weight as one row-major buffer: what is worked on (a batch
norm merged into a convolution, a weight that is compressed, a transposed view) is memory. A program
that is optimized or saved while its weights are changed in place is saved with the changed ones.
"""


def _seconds(row, stage):
    taken = row.get("cpu", {}).get(stage)
    return "" if taken is None else f"{taken:.2f}" if taken >= 0.1 else f"{taken:.3f}"


def stages(figures):
    """What each stage of ours takes, and what it holds."""
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
    """The convert step of the peers, as times ours."""
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
    """Which peer failed on which workload, and with what words."""
    rows = [
        [peer, workload, row["problem"]]
        for workload, by_converter in figures.items()
        for peer, row in by_converter.items()
        if "problem" in row
    ]
    return ["converter", "workload", "problem"], rows


def bars(judged):
    """Each promise, what was found, and whether it is kept."""
    rows = [[bar.what, bar.found, "yes" if bar.holds else "**no**"] for bar in judged]
    return ["bar", "found", "holds"], rows


def _markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def show(figures, judged, cores):
    """Print all tables and write the page."""
    console = Console()
    text = HEAD.format(cores=cores)
    parts = {
        "What a conversion takes": stages(figures),
        "Against other converters (convert step)": ratios(figures),
        "What fails": problems(figures),
        "Bars": bars(judged),
    }
    for title, (header, rows) in parts.items():
        if not rows:
            continue
        table = Table(*header, title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        text += f"## {title}\n\n{_markdown(header, rows)}\n"
    PAGE.write_text(text + MEMORY)
