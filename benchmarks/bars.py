"""Performance targets, each a ratio of two figures of one run."""

from dataclasses import dataclass

STEP = "convert + optimize"
MB = 1 << 20

# Times faster than the published converter, conversion and `optimize()` together.
FASTER = {
    "bert": 5,
    "vit": 5,
    "linears_500": 4,
    "resnet": 2,
    "linears_1gb": 20,
    "linears_4gb": 20,
}
OTHERS = ("onnx", "coremltools", "openvino", "executorch")


@dataclass(frozen=True)
class Bar:
    """One target, the measured figure, and whether it is met."""

    what: str
    found: str
    holds: bool


def _times(one, other, clock="cpu", stage=STEP):
    return other[clock][stage] / one[clock][stage]


def speed(figures):
    for workload, times in FASTER.items():
        row = figures.get(workload, {})
        ours, peer = row.get("ours"), row.get("published")
        if _fine(ours, peer):
            found = _times(ours, peer)
            yield Bar(
                f"{workload}: {times} times faster than the published converter",
                f"{found:.1f} times",
                found >= times,
            )


def others(figures):
    for workload, by_converter in figures.items():
        for peer in OTHERS:
            ours, theirs = by_converter.get("ours"), by_converter.get(peer)
            if _fine(ours, theirs):
                found = _times(ours, theirs)
                yield Bar(f"{workload}: faster than {peer}", f"{found:.1f} times", found > 1)


def flat(figures):
    rows = [(n, figures.get(f"chain_{n}", {}).get("ours")) for n in (5_000, 10_000, 20_000)]
    per_node = [row["cpu"]["convert"] / n * 1e6 for n, row in rows if _fine(row)]
    if len(per_node) == 3:
        spread = max(per_node) / min(per_node)
        found = ", ".join(f"{t:.0f} µs" for t in per_node)
        yield Bar("time per node flat from 5,000 to 20,000 nodes (10 %)", found, spread <= 1.1)


def locations(figures):
    for workload, by_converter in figures.items():
        with_, without = by_converter.get("ours_debug"), by_converter.get("ours")
        if _fine(with_, without):
            found = _times(without, with_, stage="convert")
            yield Bar(f"{workload}: debug locations within 1.3 times", f"{found:.2f}", found <= 1.3)


def lean(figures):
    for workload, by_converter in figures.items():
        ours, peer = by_converter.get("ours"), by_converter.get("published")
        if not _fine(ours):
            continue
        weights = ours["weights"]
        bound = weights * 1.15 + 500 * MB
        # Subtract the memory of the libraries, which were loaded before the model.
        used = ours["peak"] - ours["libraries"]
        found = f"{used / MB:,.0f} of {bound / MB:,.0f} MB"
        yield Bar(f"{workload}: memory of convert + save", found, used <= bound)
        if weights > 100 * MB:  # in smaller files the size of the ops matters
            share = ours["disk_bytes"] / weights
            yield Bar(f"{workload}: each weight once on disk", f"{share:.3f}", share < 1.02)
        if _fine(peer):
            found = f"{ours['ops']:,} against {peer['ops']:,}"
            yield Bar(f"{workload}: ops not above", found, ours["ops"] <= peer["ops"])
            if "run" in peer["wall"] and "run" in ours["wall"]:
                ratio = ours["wall"]["run"] / peer["wall"]["run"]
                # The latency of one program varies by this much between runs.
                yield Bar(f"{workload}: latency not above", f"{ratio:.2f}", ratio <= 1.05)


def mapped(figures):
    ours = figures.get("mapped_1gb", {}).get("ours")
    if _fine(ours) and "anonymous" in ours:
        used, weights = ours["anonymous"], ours["weights"]
        found = f"{used / MB:,.0f} of {weights / MB:,.0f} MB"
        # The system can reclaim the pages of the file at any time.
        yield Bar("mapped_1gb: memory not backed by a file", found, used <= weights / 10)


def saving(figures):
    for workload, by_converter in figures.items():
        ours, native = by_converter.get("ours"), by_converter.get("native_save")
        if _fine(ours, native):
            found = _times(native, ours, clock="wall", stage="save")
            yield Bar(
                f"{workload}: saving within 1.15 of the native", f"{found:.2f}", found <= 1.15
            )


def imports(seconds):
    found = seconds["ours"] - seconds["without"]
    yield Bar("import within 0.3 s of torch and coreai", f"{found:.2f} s", found <= 0.3)


def _fine(*rows):
    return all(row is not None and "problem" not in row for row in rows)


def every(figures, import_seconds):
    """Return all targets for which there are figures."""
    judged = (speed, others, flat, locations, lean, mapped, saving)
    return [*(bar for judge in judged for bar in judge(figures)), *imports(import_seconds)]
