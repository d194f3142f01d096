"""Checks the types of arguments as `deltalake` does: errors are raised before anything is read or written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

_LARGEST = 2**64 - 1
"""Versions and sizes are unsigned 64-bit integers in `deltalake`."""


class WithoutFields:
    """`==` and `repr` of classes that are dataclasses without fields in `deltalake`: any two instances are equal."""

    def __eq__(self, other: object) -> bool:
        return True if other.__class__ is self.__class__ else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as in dataclasses with `==`

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}()"


def wrong_type(value: Any, kind: str) -> TypeError:
    """Return the error for a value of the wrong type, with `deltalake`'s message."""
    return TypeError(f"{describe_kind(value)} is not an instance of '{kind}'")


def describe_kind(value: Any) -> str:
    """Return the type of a value as `deltalake`'s errors show it."""
    return "'None'" if value is None else f"'{type(value).__name__}' object"


def check_text(value: Any, *, required: bool = False) -> None:
    """Raise TypeError unless it is a str, or None if not `required`."""
    if not isinstance(value, str) and (required or value is not None):
        raise wrong_type(value, "str")


def check_sequence(value: Any) -> None:
    """Raise TypeError unless it is a list or another sequence other than a str."""
    if isinstance(value, str | bytes):
        raise TypeError(f"Can't extract `{type(value).__name__}` to `Vec`")
    if not isinstance(value, Sequence):
        raise wrong_type(value, "Sequence")


def check_texts(value: Any) -> None:
    """Raise TypeError unless it is a sequence of str (not a str itself), or None."""
    for item in _items(value):
        check_text(item, required=True)


def check_numbers(value: Any) -> None:
    """Raise TypeError unless it is a sequence of integers, or None."""
    for item in _items(value):
        if item is None:
            raise TypeError("'None' cannot be interpreted as an integer")
        check_number(item)


def _items(value: Any) -> Any:
    """Return the items of a sequence; TypeError for anything else, including a str."""
    if value is None:
        return ()
    if not hasattr(value, "__getitem__") or isinstance(value, str | bytes | Mapping):
        check_sequence(value)
    return value


def check_flag(value: Any) -> None:
    """Raise TypeError unless it is True or False."""
    if not isinstance(value, bool):
        raise wrong_type(value, "bool")


def check_signed(value: Any) -> None:
    """Raise TypeError unless it is an integer, OverflowError unless it is a signed 64-bit one."""
    if not isinstance(value, int):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"Python int too large to convert to C long: {value}")


def check_number(value: Any) -> None:
    """Raise TypeError unless it is an integer or None; OverflowError if it is negative or too large."""
    if value is None:
        return
    if not isinstance(value, int):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    if not 0 <= value <= _LARGEST:
        what = "can't convert negative int to unsigned" if value < 0 else "int too big to convert"
        raise OverflowError(f"{what}: {value}")


def check_commit_arguments(commit_properties: Any, post_commithook_properties: Any) -> None:
    """Raise AttributeError for arguments that are not of these classes, before anything is committed."""
    if commit_properties is not None:
        commit_properties.custom_metadata, commit_properties.max_commit_retries  # noqa: B018  raises if missing
        commit_properties.app_transactions  # noqa: B018
        check_number(commit_properties.max_commit_retries)
        transactions = commit_properties.app_transactions
        if transactions is not None:
            check_sequence(transactions)
        for transaction in transactions or ():
            if not hasattr(transaction, "app_id"):
                raise wrong_type(transaction, "Transaction")
    if post_commithook_properties is not None:
        check_flag(post_commithook_properties.create_checkpoint)
        if post_commithook_properties.cleanup_expired_logs is not None:
            check_flag(post_commithook_properties.cleanup_expired_logs)


def check_settings(value: Any, *, nullable: bool = False, required: bool = False) -> None:
    """Raise TypeError unless it is a dict of str to str (or to None if `nullable`), or None if not `required`."""
    if value is None and not required:
        return
    if not isinstance(value, Mapping):
        raise wrong_type(value, "dict")
    for key, setting in value.items():
        check_text(key, required=True)
        if not isinstance(setting, str) and not (nullable and setting is None):
            raise TypeError(f"{wrong_type(setting, 'str')}: it is the value of {key!r}")


ORDER = ("commit_properties", "post_commithook_properties")


def commit_arguments(
    method: str,
    args: Sequence[Any],
    commit_properties: Any = None,
    post_commithook_properties: Any = None,
    *,
    order: Sequence[str] = ORDER,
) -> tuple[Any, Any]:
    """Return the two arguments, passed either way. The method itself must call this: the warning is for its caller."""
    if not args:
        return commit_properties, post_commithook_properties
    if len(args) > len(order):
        raise TypeError(f"{method}() takes at most {len(order)} positional commit argument(s), got {len(args)}")
    warnings.warn(
        f"Passing commit arguments positionally to {method}() is deprecated and will be removed in a future release. "
        "Use keyword arguments instead.",
        DeprecationWarning,
        stacklevel=3,
    )
    arguments = {"commit_properties": commit_properties, "post_commithook_properties": post_commithook_properties}
    for name, value in zip(order, args, strict=False):
        if arguments.get(name) is not None:
            raise TypeError(f"{method}() got multiple values for {name!r}")
        arguments[name] = value
    return arguments["commit_properties"], arguments["post_commithook_properties"]
