"""Names that exist only because other programs import them; `compat.names` lists all of them.

Top-level modules with a leading underscore, `externalize` and `_compression` re-export from here.
"""
