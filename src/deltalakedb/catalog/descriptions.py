"""CatalogDescriptions: the part of Catalog for comments, tags and searching."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deltalakedb.catalog.delta_logs import CatalogFiles
from deltalakedb.store.names import parse_namespace

if TYPE_CHECKING:
    from deltalakedb.operations.definition import PropertyValue
    from deltalakedb.store.search import SearchHit
    from deltalakedb.transactions.transaction import CatalogTransaction


class CatalogDescriptions(CatalogFiles):
    """Comments and tags are stored in the tables' own metadata, so each change of them makes a version."""

    @abstractmethod
    def begin(
        self, message: str | None = None, lock: Sequence[str] | None = None, tables: Sequence[str] | None = None
    ) -> CatalogTransaction: ...

    def set_comment(self, table: str, text: str | None, column: str | None = None) -> None:
        """Set the comment on a table, or on one of its columns (nested ones as `a.b`); None removes it."""
        with self.begin(tables=[table]) as tx:
            tx.set_comment(table, text, column)

    def set_tags(self, table: str, tags: Mapping[str, PropertyValue | None], column: str | None = None) -> None:
        """Set tags on a table, or on one of its columns; other tags stay. The value None removes a tag."""
        with self.begin(tables=[table]) as tx:
            tx.set_tags(table, tags, column)

    def search(
        self, text: str | None = None, *, tag: str | None = None, namespace: str | None = None
    ) -> list[SearchHit]:
        """Return the tables that contain every word of `text` in names, columns, comments or tags, ignoring case.

        `tag` is `pii` or `pii=yes`, on the table or one of its columns. `namespace` includes nested namespaces.
        This is one SQL query; no table is opened.
        """
        from deltalakedb.store.search import Wanted, search_tables

        parsed_namespace = None if namespace is None else parse_namespace(namespace)
        with self.store.read(single=True) as conn:
            return search_tables(conn, Wanted.of(text, tag), parsed_namespace)
