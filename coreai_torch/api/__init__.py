"""`convert`: turn a model or an exported program into a verified, saved Core AI program."""

from .converting import convert

__all__ = ["convert"]
