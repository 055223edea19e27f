"""Building blocks that several lowerings share."""
