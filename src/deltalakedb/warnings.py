"""Warnings of this package, under the names that `deltalake` gives them."""


class ExperimentalWarning(Warning):
    """What is used may still change."""
