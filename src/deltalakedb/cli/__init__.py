"""The command line `dl`: one module per group of commands."""

from deltalakedb.cli.app import app, main

__all__ = ["app", "main"]
