from cli.shell import shell  # noqa: F401  a fixture
