"""Programs built on the converter, each in a separate environment."""
