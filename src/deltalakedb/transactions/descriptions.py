"""DescriptionStatements: comments and tags inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from deltalakedb.operations.definition import PropertyValue
from deltalakedb.operations.describe import set_comment, set_tags
from deltalakedb.transactions.upkeep import UpkeepStatements


class DescriptionStatements(UpkeepStatements):
    """Statements that change only the comments and tags of a table and its columns."""

    def set_comment(self, table: str, text: str | None, column: str | None = None) -> None:
        """Set the comment on a table, or on one of its columns (nested ones as `a.b`); None removes it."""
        self.run(table, partial(set_comment, text=text, column=column))

    def set_tags(self, table: str, tags: Mapping[str, PropertyValue | None], column: str | None = None) -> None:
        """Set tags on a table, or on one of its columns; other tags stay. The value None removes a tag."""
        self.run(table, partial(set_tags, tags=tags, column=column))
