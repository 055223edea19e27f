"""Programs built on the converter, each in an environment of its own."""
