"""The version of the package, as `pyproject.toml` states it too."""

VERSION = "0.1.0"
