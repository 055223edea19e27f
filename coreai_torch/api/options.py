"""The options of `convert` in three groups, whose fields are keywords too."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, TypeVar

from ..errors import ArgumentTypeError
from ..ports import ImageInput, Ports
from ..precision import Precision, check_unused
from ..targets import Target

_Group = TypeVar("_Group", Ports, Precision, Target)


class Keywords(TypedDict, total=False):
    """Fields of `Ports`, `Precision` and `Target` as keywords of `convert`."""

    outputs: Sequence[str] | None
    images: Mapping[str, ImageInput] | None
    bool_ports: str
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None
    random: str | None
    keep: str | Sequence[str]
    calibration: Iterable[Any] | None
    half_ports: bool
    exact: bool
    safe: bool
    skip_rewrites: Collection[str]
    extra_rewrites: Collection[str]


class NamedKeywords(Keywords, total=False):
    """The same with the names, which `convert` has as parameters."""

    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    state_names: Sequence[str] | None


@dataclass(frozen=True)
class Options:
    """The three groups, checked."""

    ports: Ports
    precision: Precision | None
    target: Target

    @classmethod
    def of(
        cls,
        ports: Ports | None,
        precision: Precision | str | None,
        target: Target | str | None,
        keywords: Mapping[str, Any],
        caller: str = "convert",
    ) -> Options:
        """Return the groups with the keywords that belong to them."""
        known = [field.name for group in (Ports, Precision, Target) for field in fields(group)]
        known = [name for name in known if name not in ("dtype", "unit")]
        for name in keywords:
            if name not in known:
                raise ArgumentTypeError(
                    f"{caller} has no argument {name!r}\n  try   pass {_near(name, known)}"
                )
        of = {group: _fields(group, keywords) for group in (Ports, Precision, Target)}
        return cls(
            _group(Ports, "ports", ports, {}, of[Ports]),
            _precision(precision, of[Precision]),
            _group(Target, "target", target, {"unit": target}, of[Target]),
        )


def _fields(group: type, keywords: Mapping[str, Any]) -> dict[str, Any]:
    names = [field.name for field in fields(group)]
    return {name: value for name, value in keywords.items() if name in names}


def _group(
    kind: type[_Group], name: str, given: Any, short: Mapping[str, Any], keywords: dict[str, Any]
) -> _Group:
    """Return a group that was given as an object, or as keywords beside its short form."""
    if not isinstance(given, kind):
        if given is not None and not isinstance(given, str):
            raise ArgumentTypeError(
                f"{name} is {given!r}\n  try   pass coreai_torch.{kind.__name__}(...)"
            )
        return kind(**short, **keywords)
    if keywords:
        first = next(iter(keywords))
        raise ArgumentTypeError(
            f"{first} is given beside {name}={kind.__name__}(...)\n"
            f"  try   pass {name}={kind.__name__}(..., {first}=...)"
        )
    return given


def _precision(given: Precision | str | None, keywords: dict[str, Any]) -> Precision | None:
    if given is None:
        check_unused(**{"keep": "auto", "calibration": None, "half_ports": False} | keywords)
        return None
    return Precision.of(_group(Precision, "precision", given, {"dtype": given}, keywords))


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"{near[0]}=..." if near else f"one of {', '.join(known)}"
