"""The converted program: saving, reading and showing it."""
