"""Warnings of this package, with the names of `deltalake`."""


class ExperimentalWarning(Warning):
    """A feature may still change."""
