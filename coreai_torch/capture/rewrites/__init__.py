"""torch functions rewritten so that they can be exported."""
