"""Assemble and write a self-contained page of HTML: inline style, scripts and data.

A content security policy allows exactly these scripts, by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from .markup import Markup, joined
from .space import check_space, full_disk_reported


def assemble(title: str, body: Markup, data: Markup, style: str, scripts: Sequence[str]) -> str:
    """Fill the template; insert text from models last, so that marks in it have no effect."""
    hashes = " ".join(_digest(script) for script in scripts)
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src {_digest(style)}; script-src {hashes}"
    )
    elements = "\n".join(f"<script>{script}</script>" for script in scripts)
    page = page_file(__package__, "page.html")
    for mark, text in {"policy": policy, "style": style, "scripts": elements}.items():
        page = Markup(page.replace(f"<!--{mark}-->", text))
    before, _, rest = page.partition("<!--title-->")
    middle, _, rest = rest.partition("<!--body-->")
    after, _, end = rest.partition("<!--data-->")
    return "".join([before, joined(title), middle, body, after, data, end])


def write(path: Path | str, page: str) -> Path:
    """Write a page atomically: to a temporary file that then replaces `path`."""
    path, data = Path(path), page.encode()
    check_space(path, len(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with full_disk_reported(path):
            temporary.write_bytes(data)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def page_file(package: str, name: str) -> Markup:
    """Return a file of a package that a page contains."""
    return Markup((resources.files(package) / name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    """Return the hash that a content security policy uses to allow an inline script."""
    hashed = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(hashed).decode()}'"
