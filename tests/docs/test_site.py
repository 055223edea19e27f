"""Check that every page is in the navigation of the site and that no link is broken."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BASES = [ROOT, ROOT / "coreai_torch"]
FILE_NAMES = {path.name for path in (ROOT / "coreai_torch").rglob("*.py")}
# Files that the guides write, and modules that decision 12 names as moved.
EXAMPLE_FILES = {"models.py", "script.py", "verify.md"}
FORMER_MODULES = {"coreai_torch.ir.program", "coreai_torch.externalize"}
LINKING = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:[\w.]+/)*\w+\.(?:py|md|yml|toml|txt)|(?:\w+/)+)`")
MODULE = re.compile(r"`(coreai_torch(?:\.\w+)+)[`(]")
NAV_ENTRY = re.compile(r"^\s+- (?:[^:]+: )?(\S+\.md)$", re.MULTILINE)


def slug(heading):
    """Return the anchor of a heading on the site: lowercase words joined by hyphens."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[\s-]+", "-", plain)


def anchors(page):
    text = FENCE.sub("", page.read_text())
    return {slug(found) for found in re.findall(r"^#+ (.*)$", text, re.MULTILINE)} | set(
        re.findall(r"^::: (\S+)$", text, re.MULTILINE)  # filled in by mkdocstrings
    )


def test_every_page_is_in_the_navigation_once():
    listed = NAV_ENTRY.findall((ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_broken(page):
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_file_and_module_exists(page):
    text = FENCE.sub("", page.read_text())
    files = [name for name in FILE.findall(text) if name not in EXAMPLE_FILES | FILE_NAMES]
    missing = [name for name in files if not any((base / name).exists() for base in BASES)]
    missing += [name for name in MODULE.findall(text) if not _is_importable(name)]
    assert not missing


def _is_importable(name):
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return name in FORMER_MODULES
    return True


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("A KV cache as state", "a-kv-cache-as-state"),
        ("`convert`: f16, or not?", "convert-f16-or-not"),
    ],
)
def test_anchor_of_heading(heading, anchor):
    assert slug(heading) == anchor
