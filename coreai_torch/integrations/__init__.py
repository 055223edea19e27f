"""Converters for the export interfaces of other libraries, each imported on its own."""
