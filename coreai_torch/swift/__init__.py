"""Write the ports of a program as Swift source."""

from .source import swift_source

__all__ = ["swift_source"]
