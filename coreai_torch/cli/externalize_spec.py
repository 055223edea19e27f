"""Parser of `--externalize`: `models.py:Norm` or `models.py:Norm=norm(axes,eps)`."""

from __future__ import annotations

import re
from typing import Any

import typer

from .model_source import module_at

_SPEC = re.compile(
    r"(?P<module>[^=]+):(?P<cls>\w+)(?:=(?P<composite>[\w.]+)(?:\((?P<attrs>[\w\s,]*)\))?)?"
)
_HELP = "try  models.py:Norm, or models.py:Norm=rms_norm(axes,eps) for a composite op"


def parse(text: str) -> Any:
    """Return an `ExternalizeSpec` for the class, with the composite if one is named."""
    found = _SPEC.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} does not name a class; {_HELP}")
    module = module_at(found["module"])
    cls = getattr(module, found["cls"], None)
    if cls is None:
        names = [n for n, v in vars(module).items() if isinstance(v, type)]
        raise typer.BadParameter(f"{found['module']} has no {found['cls']!r}; it has {names}")
    from ..passes.externalize.spec import ExternalizeSpec

    attrs = [name.strip() for name in (found["attrs"] or "").split(",") if name.strip()]
    return ExternalizeSpec(cls, found["composite"], attrs or None)
