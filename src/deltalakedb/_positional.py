"""Commit arguments given by position: taken with a warning, as `deltalake` does until it removes them."""

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
    """The two arguments, wherever they were given. It is called by the method itself: the warning is for its caller."""
    if not args:
        return commit_properties, post_commithook_properties
    if len(args) > len(order):
        raise TypeError(f"{method}() takes at most {len(order)} commit arguments by position, not {len(args)}")
    warnings.warn(
        f"{method}() takes its commit arguments by name: giving them by position is deprecated",
        DeprecationWarning,
        stacklevel=3,
    )
    found = {"commit_properties": commit_properties, "post_commithook_properties": post_commithook_properties}
    for name, value in zip(order, args, strict=False):
        if found.get(name) is not None:
            raise TypeError(f"{method}() got {name} twice, by position and by name")
        found[name] = value
    return found["commit_properties"], found["post_commithook_properties"]
