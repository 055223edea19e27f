"""The part of an error that compressed weights explain, as data."""

from __future__ import annotations

from dataclasses import dataclass

from ..formatting import counted


@dataclass(frozen=True)
class WeightChange:
    """A weight of the model that the program stores compressed."""

    name: str
    stored: str  # the element type of the data: si4, ui8, f8E4M3FN
    error: float  # root mean square of the change, relative to that of the weight


@dataclass(frozen=True)
class OutputChange:
    """The error of one output, relative to the original model's, and its parts."""

    name: str
    error: float  # of the program
    by_weights: float  # of the original model if it uses the weights of the program
    rest: float  # difference between the program and the original model with its weights

    @property
    def explained(self) -> float:
        """The share of the squared error that the compressed weights explain, from 0 to 1."""
        if self.error == 0:
            return 1.0
        return min(1.0, max(0.0, 1 - (self.rest / self.error) ** 2))

    def __str__(self) -> str:
        """Return one line."""
        return (
            f"{self.name}: {self.error:.3%} off the original model; the compressed weights explain "
            f"{_share(self.explained)} of it, and {self.rest:.2g} of the output is left"
        )


def _share(part: float) -> str:
    """Return a percentage that is 100 % only if nothing is left."""
    shown = f"{part:.2%}"
    return "more than 99.99%" if shown == "100.00%" and part < 1 else shown


@dataclass(frozen=True)
class CompressionEffect:
    """A comparison of the original model, the model with the program's weights, and the program."""

    weights: tuple[WeightChange, ...]
    of: int  # weights of the model with two axes or more
    outputs: tuple[OutputChange, ...]
    ok: bool  # whether the program matches the model with the program's weights
    calls: int  # that were compared with it
    quantizes_activations: bool
    mismatch: str = ""  # how it differs from that model

    def __str__(self) -> str:
        """Describe the weights and the parts of the error."""
        kinds = ", ".join(dict.fromkeys(weight.stored for weight in self.weights))
        largest = max((weight.error for weight in self.weights), default=0.0)
        lines = [
            f"the program stores {len(self.weights)} of {counted(self.of, 'weight')} compressed "
            f"({kinds}); they change by up to {largest:.2%}"
        ]
        lines += [f"  {output}" for output in self.outputs]
        if self.quantizes_activations:
            lines.append("  the program also rounds activations, which is part of the rest")
        if self.ok:
            many = counted(self.calls, "call")
            lines.append(f"  the program matches the model with the compressed weights in {many}")
        else:
            lines.append(
                f"  the program does not match the model with these weights: {self.mismatch}"
            )
        return "\n".join(lines)
