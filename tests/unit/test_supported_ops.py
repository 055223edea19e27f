"""Check the notes of the table of ops."""

from __future__ import annotations

from coreai_torch import supported_ops


def _notes(name):
    return next(op.notes for op in supported_ops.supported() if op.name == name)


def test_the_notes_say_what_differs_without_exact():
    assert _notes("aten.floor.default") == "Without `exact`, an infinity becomes NaN."
    assert "Without `exact`" not in _notes("aten.round.default")


def test_a_later_line_of_a_docstring_is_added():
    def lowering():
        """Return a quotient.

        Why this is so.

        Without `exact`, a quotient by zero
        is NaN.
        """

    assert supported_ops._without_exact(lowering) == ("Without `exact`, a quotient by zero is NaN.")
