"""Histograms as SVG, without scripts and styles."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..asset.markup import Markup, element

_BINS = 24
_WIDTH, _HEIGHT = 12, 90  # of a bar, in pixels


def histogram(title: str, values: Sequence[float], unit: str) -> Markup:
    """Return a histogram of the values up to their 99th percentile; the last bar has the rest."""
    if not values:
        return _empty(title)
    ordered = sorted(values)
    top = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)))] or 1.0
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, int(_BINS * value / top))] += 1
    middle = ordered[len(ordered) // 2]
    caption = f"median {_short(middle)} {unit}, largest {_short(ordered[-1])} {unit}"
    return _figure(title, counts, "0", f"{_short(top)} {unit}", caption)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def logarithmic_histogram(title: str, values: Sequence[float]) -> Markup:
    """Return a histogram with one bar for each power of ten."""
    if not values:
        return _empty(title)
    powers = [math.floor(math.log10(value)) for value in values]
    low, high = min(powers), max(powers)
    counts = [0] * (high - low + 1)
    for power in powers:
        counts[power - low] += 1
    ordered = sorted(values)
    caption = f"median {ordered[len(ordered) // 2]:.1e}, largest {ordered[-1]:.1e}"
    return _figure(title, counts, f"1e{low}", f"1e{high + 1}", caption)


def _figure(title: str, counts: list[int], low: str, high: str, caption: str) -> Markup:
    most = max(counts)
    bars = (
        element(
            "rect",
            element("title", f"{count:,}"),
            x=place * _WIDTH,
            y=f"{_HEIGHT * (1 - count / most):.1f}",
            width=_WIDTH - 1,
            height=f"{_HEIGHT * count / most:.1f}",
        )
        for place, count in enumerate(counts)
    )
    wide = _WIDTH * len(counts)
    labels = (
        element("text", low, x=0, y=_HEIGHT + 14),
        element("text", high, x=wide, y=_HEIGHT + 14, text_anchor="end"),
    )
    size = f"0 0 {wide} {_HEIGHT + 18}"
    chart = element("svg", *bars, *labels, viewBox=size, role="img", aria_label=title)
    return element("figure", element("h3", title), chart, element("figcaption", caption))


def _empty(title: str) -> Markup:
    return element("figure", element("h3", title), element("figcaption", "not measured"))
