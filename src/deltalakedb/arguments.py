"""Checks the types of arguments as `deltalake` does: a wrong one is a TypeError before anything is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LARGEST = 2**64 - 1
"""Versions and sizes are unsigned numbers of 64 bits in `deltalake`."""


def check_text(value: Any, *, required: bool = False) -> None:
    """TypeError unless it is a text, or None where it is not `required`."""
    if not isinstance(value, str) and (required or value is not None):
        raise TypeError(f"'{type(value).__name__}' object is not an instance of 'str'")


def check_texts(value: Any) -> None:
    """TypeError unless it is a sequence of texts, or None; a text is no such sequence."""
    if value is None:
        return
    if isinstance(value, str | bytes) or not hasattr(value, "__getitem__"):
        raise TypeError(f"'{type(value).__name__}' object is not a list of texts")
    for item in value:
        check_text(item)


def check_flag(value: Any) -> None:
    """TypeError unless it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"'{type(value).__name__}' object is not an instance of 'bool'")


def check_number(value: Any) -> None:
    """TypeError unless it is a whole number, or None; OverflowError when it is negative or too large."""
    if value is None:
        return
    if not isinstance(value, int):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    if not 0 <= value <= _LARGEST:
        raise OverflowError(f"{value} is negative, or too large")


def check_commit_arguments(commit_properties: Any, post_commithook_properties: Any) -> None:
    """AttributeError for what is not of these classes, before anything is committed."""
    if commit_properties is not None:
        commit_properties.custom_metadata, commit_properties.max_commit_retries  # noqa: B018  their absence is the error
        commit_properties.app_transactions  # noqa: B018
        check_number(commit_properties.max_commit_retries)
        transactions = commit_properties.app_transactions
        if isinstance(transactions, str) or not all(hasattr(one, "app_id") for one in transactions or ()):
            raise TypeError(f"app_transactions is a list of Transactions, not {transactions!r}")
    if post_commithook_properties is not None:
        check_flag(post_commithook_properties.create_checkpoint)
        if post_commithook_properties.cleanup_expired_logs is not None:
            check_flag(post_commithook_properties.cleanup_expired_logs)


def check_settings(value: Any, *, nullable: bool = False, required: bool = False) -> None:
    """TypeError unless it is a mapping of texts to texts (or to None where `nullable`), or None if not `required`."""
    if value is None and not required:
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"'{type(value).__name__}' object is not an instance of 'dict'")
    for key, one in value.items():
        if not isinstance(key, str) or not (isinstance(one, str) or (nullable and one is None)):
            raise TypeError(f"a setting is a text; {key!r} is {one!r}")
