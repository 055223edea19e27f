"""`convert`: turn a model or an exported program into a verified, saved Core AI program."""

from .converting import convert
from .preparing import prepare

__all__ = ["convert", "prepare"]
