"""Rewrite Metal source for a C++ compiler; line numbers do not change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import KernelError
from ..ir.metal import Generated

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>\"(?:\\.|[^\"\\])*\")"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[\w.]|[eEpP][+-])*)|(?P<sign>::|->|<<|>>|.)",
    re.DOTALL,
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:metal|Metal|simd)[^>\n]*>", re.MULTILINE)
_CONSTANT = re.compile(
    r"\bconstant\s+(?:constexpr\s+)?(?P<type>[\w:]+)\s+(?P<name>\w+)\s*"
    r"\[\[\s*function_constant\s*\(\s*(?P<index>\d+)\s*\)\s*\]\]\s*;"
)
_DEFINED = re.compile(r"\bis_function_constant_defined\s*\(\s*(\w+)\s*\)")
_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_OPENS, _CLOSES = "([{", ")]}"


_PARAMETER = re.compile(
    r"(?:tensor\s*<\s*device\s+(?P<tensor>[\w:]+)\s*,[^>]*?,\s*(?P<rank>\d+)\s*>\s*,[^>]*>"
    r"|constant\s+(?P<scalar>[\w:]+)\s*&|(?P<builtin>[\w:<>, ]+?))"
    r"\s*\b(?P<name>\w+)\s*\[\[\s*(?P<attribute>\w+)(?:\s*\([^)]*\))?\s*\]\]\s*"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of an entry point: a tensor, a number (rank 0), or a thread attribute."""

    name: str
    metal: str
    rank: int = 0
    attribute: str = "buffer"

    @property
    def argument(self) -> str:
        """Return the argument expression; `{}` stands for the number of the tensor."""
        if self.attribute != "buffer":
            return f"coreai::attributes::{self.attribute}<{self.metal}>()"
        if self.rank:
            return f"coreai::handle<{self.metal}, {self.rank}>({{}})"
        return f"coreai::scalar_argument<{self.metal}>({{}})"


@dataclass(frozen=True)
class Source:
    """A complete Metal source with one entry point, and the positions of the author's lines."""

    kernel: str
    entry: str
    text: str
    parts: tuple[tuple[str, str], ...]  # origin and text; its last occurrence counts

    @classmethod
    def of(cls, kernel: str, generated: Generated) -> Source:
        """Return the source of a kernel with the two texts that its author wrote."""
        parts = (("src", generated.body), ("helper_src", generated.helpers))
        return cls(kernel, generated.name, generated.text, tuple(p for p in parts if p[1]))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the entry point, in order."""
        opening = re.search(rf"\b{re.escape(self.entry)}\s*\(", self.text)
        if opening is None:
            raise KernelError(f"the Metal source has no function {self.entry!r}")
        place, found = opening.end(), []
        while parameter := _PARAMETER.match(self.text, place):
            found.append(_parameter(parameter))
            place = parameter.end()
            if self.text[place] == ")":
                return tuple(found)
            place = re.compile(r"\s*,\s*").match(self.text, place).end()  # type: ignore[union-attr]
        shown = self.text[place : place + 60]
        raise KernelError(
            f"Metal kernel {self.kernel!r}: cannot parse its parameters starting at {shown!r}"
        )

    def place(self, line: int) -> tuple[str, int, str] | None:
        """Map a line of the source to the author's line: its origin, number and text."""
        for origin, text in self.parts:
            first = self.text.count("\n", 0, self.text.rindex(text)) + 1
            lines = text.split("\n")
            if first <= line < first + len(lines):
                return origin, line - first + 1, lines[line - first]
        return None


def _parameter(found: re.Match[str]) -> Parameter:
    name, attribute = found["name"], found["attribute"]
    if found["tensor"]:
        return Parameter(name, found["tensor"], int(found["rank"]))
    if found["scalar"]:
        return Parameter(name, found["scalar"])
    return Parameter(name, found["builtin"].strip(), 0, attribute)


def prepare(
    source: Source,
    constants: Mapping[int | str, bool | int | float],
    *,
    branches_as_float: bool = False,
) -> str:
    """Return the source as C++ with unchanged line numbers, and the call for one thread."""
    text = _INCLUDE.sub("", _with_constants(source.kernel, source.text, constants))
    tokens = _tokens(text)
    _reject_double(source.kernel, tokens)
    _rewrite_address_spaces(tokens)
    _merge_swizzles(tokens)
    if branches_as_float:
        _widen_conditionals(tokens)
    given = ", ".join(p.argument.format(i) for i, p in enumerate(source.parameters))
    call = f"\nvoid coreai_run_kernel() {{ {source.entry}({given}); }}\n"
    return "".join(t.ahead + t.text + t.after for t in tokens) + call


def _with_constants(name: str, text: str, constants: Mapping[int | str, bool | int | float]) -> str:
    """Define function constants; one without a value must be tested before it is used."""
    tested = set(_DEFINED.findall(text))
    known: set[str] = set()

    def define(found: re.Match[str]) -> str:
        variable, index = found["name"], int(found["index"])
        value = constants.get(variable, constants.get(index))
        if value is None and variable not in tested:
            raise KernelError(
                f"Metal kernel {name!r}: the function constant {variable!r} has no value\n"
                f"  try   pass function_constants={{{index}: ...}}, or test it with "
                "is_function_constant_defined"
            )
        if value is not None:
            known.add(variable)
        spelled = "" if value is None else str(value).lower()
        blank = "\n" * found[0].count("\n")
        return f"static constexpr {found['type']} {variable} = {found['type']}({spelled});{blank}"

    text = _CONSTANT.sub(define, text)
    return _DEFINED.sub(lambda found: str(found[1] in known).lower(), text)


@dataclass
class _Token:
    kind: str
    text: str
    ahead: str = ""  # text inserted before it
    after: str = ""  # text inserted after it


def _tokens(text: str) -> list[_Token]:
    return [_Token(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(text)]


def _significant(tokens: Sequence[_Token]) -> list[_Token]:
    return [t for t in tokens if t.kind not in ("space", "comment")]


def _reject_double(name: str, tokens: Sequence[_Token]) -> None:
    if any(t.kind == "word" and t.text == "double" for t in tokens):
        raise KernelError(
            f"Metal kernel {name!r}: its source uses 'double', a type that Metal does not have\n"
            "  try   use float"
        )


def _rewrite_address_spaces(tokens: list[_Token]) -> None:
    """Make `threadgroup` variables thread-local statics; remove the qualifier elsewhere."""
    words = _significant(tokens)
    for i, token in enumerate(words):
        if token.kind != "word":
            continue
        before = words[i - 1].text if i else ";"
        if token.text == "constant":
            near = {t.text for t in words[max(i - 2, 0) : i + 3]}
            token.text = "" if "const" in near else "const"
        elif token.text == "threadgroup":
            token.text = ""
            if before in (";", "{", "}"):
                _declare(words, i)


def _declare(words: list[_Token], at: int) -> None:
    """Rewrite the declaration at `at` to threadgroup memory, unless it declares a pointer."""
    names: list[str] = []
    depth, angles, last = 0, 0, ""
    for token in words[at + 1 :]:
        text = token.text
        if depth == 0 and angles == 0 and text in ("*", "&", "(", "="):
            return  # a pointer to threadgroup memory, not a variable in it
        if depth == 0 and angles == 0 and text in ("[", ",", ";") and last:
            names.append(last)
            last = ""
        depth += (text in tuple(_OPENS)) - (text in tuple(_CLOSES))
        angles += (text == "<") - (text == ">") - 2 * (text == ">>" and angles > 1)
        if token.kind == "word" and depth == 0 and angles == 0:
            last = text
        if text == ";" and depth == 0:
            calls = (f' coreai::shared_memory(&{n}, sizeof {n}, "{n}");' for n in names)
            token.after = "".join(calls)
            words[at].text = "static thread_local"
            return


def _merge_swizzles(tokens: list[_Token]) -> None:
    """Rewrite a swizzle of a swizzle, such as `v.wzyx.xy`, to a single one, `v.wz`."""
    words = _significant(tokens)
    for dot, outer, next_dot, inner in zip(words, words[1:], words[2:], words[3:], strict=False):
        if (dot.text, next_dot.text) != (".", ".") or not _SWIZZLE.fullmatch(outer.text):
            continue
        places = [max("xyzw".find(c), "rgba".find(c)) for c in inner.text]
        if all(0 <= place < len(outer.text) for place in places):
            inner.text = "".join(outer.text[place] for place in places)
            dot.text = outer.text = ""


def _widen_conditionals(tokens: list[_Token]) -> None:
    """Convert bfloat branches of every `a ? b : c` to float."""
    words = _significant(tokens)
    for i, token in enumerate(words):
        if token.text == "?":
            middle = _end(words, i)
            last = _end(words, middle)
            for opening, closing in ((i, middle), (middle, last)):
                words[opening].after += " coreai::branch("
                words[closing].ahead += ")"


def _end(words: Sequence[_Token], start: int) -> int:
    """Return the index of the token that ends the branch which follows `start`."""
    depth = questions = 0
    for i in range(start + 1, len(words)):
        text = words[i].text
        if depth == 0 and questions == 0 and text in (":", ",", ";", ")", "]", "}"):
            return i
        questions += (text == "?") - (text == ":")
        depth += (text in tuple(_OPENS)) - (text in tuple(_CLOSES))
    return len(words) - 1
