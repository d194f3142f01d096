"""Commit arguments passed by position: accepted with a warning, as `deltalake` does until it removes them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

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
