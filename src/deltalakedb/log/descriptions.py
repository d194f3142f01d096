"""Where a table's metadata keeps what people note beside it: comments, and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deltalakedb.log.types import StructField

TAG_PREFIX: Final = "tag."
"""Tags are properties of a table, and entries of a column's metadata, whose names begin so."""

COMMENT: Final = "comment"
"""The entry of a column's metadata that holds its comment; a table's is `metaData.description`."""


def tags_of(entries: Mapping[str, Any]) -> dict[str, str]:
    """The tags among a table's properties or in a column's metadata, by their names."""
    return {
        key.removeprefix(TAG_PREFIX): str(value)
        for key, value in entries.items()
        if key.startswith(TAG_PREFIX) and value is not None
    }


def comment_of(item: StructField) -> str | None:
    """A column's comment."""
    comment = item.metadata.get(COMMENT)
    return comment if isinstance(comment, str) else None
