"""Entries that have no meaning in an inference graph, each with its reason.

What a sample itself shows (random draws, sparse layouts) is found at run time and counted there.
"""

from __future__ import annotations

OUT_OF_SCOPE: dict[str, str] = {}
