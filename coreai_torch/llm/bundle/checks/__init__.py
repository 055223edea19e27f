"""Checks of a written bundle: its files, its descriptors, and runs that emulate the engine."""
