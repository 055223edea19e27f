"""The form in which the Linux runtime loads a program: other ops, the same numbers."""
