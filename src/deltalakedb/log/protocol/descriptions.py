"""Where a table's metadata stores comments and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deltalakedb.log.schema.types import StructField

TAG_PREFIX: Final = "tag."
"""The prefix of tags among a table's properties and in a column's metadata."""

COMMENT: Final = "comment"
"""The key of a column's comment in its metadata; a table's is `metaData.description`."""


def tags_of(entries: Mapping[str, Any]) -> dict[str, str]:
    """The tags among a table's properties or in a column's metadata, by name."""
    return {
        key.removeprefix(TAG_PREFIX): str(value)
        for key, value in entries.items()
        if key.startswith(TAG_PREFIX) and value is not None
    }


def comment_of(item: StructField) -> str | None:
    """A column's comment."""
    comment = item.metadata.get(COMMENT)
    return comment if isinstance(comment, str) else None
