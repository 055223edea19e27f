"""Sabotage lowerings one by one, and count which faults `verify` finds."""
