"""The version of the package: stated here only. Builds, commits, `dl --version` and `__version__` take it from here."""

__version__ = "0.1.0"
