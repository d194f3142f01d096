"""Calls of `deltalake`, one a line, run against both libraries; see tests/README.md.

`calls/*.txt` are the tables, `differences.toml` says which calls differ and why. `python -m tests.differential` runs
everything, brings `differences.toml` up to date and writes the list of differences into docs/from-deltalake.md.
"""
