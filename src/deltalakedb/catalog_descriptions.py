"""The part of Catalog that deals with what people note beside tables: comments, tags, and the search for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .catalog_files import CatalogFiles
from .names import parse_namespace

if TYPE_CHECKING:
    from .definitions.table import PropertyValue
    from .store.search import SearchHit
    from .transactions.transaction import CatalogTransaction


class CatalogDescriptions(CatalogFiles):
    """Comments and tags live in the tables' own metadata, so each change of them is a version."""

    @abstractmethod
    def begin(
        self, message: str | None = None, lock: Sequence[str] | None = None, tables: Sequence[str] | None = None
    ) -> CatalogTransaction: ...

    def set_comment(self, table: str, text: str | None, column: str | None = None) -> None:
        """Set the comment on a table, or on one of its columns (nested ones as `a.b`); None removes it."""
        with self.begin(tables=[table]) as tx:
            tx.set_comment(table, text, column)

    def set_tags(self, table: str, tags: Mapping[str, PropertyValue | None], column: str | None = None) -> None:
        """Set tags on a table, or on one of its columns; other tags stay, and None as a value removes one."""
        with self.begin(tables=[table]) as tx:
            tx.set_tags(table, tags, column)

    def search(
        self, text: str | None = None, *, tag: str | None = None, namespace: str | None = None
    ) -> list[SearchHit]:
        """The tables in which every word of `text` occurs, in names, columns, comments or tags, whatever its case.

        `tag` is `pii` or `pii=yes`, on the table or a column of it. `namespace` includes the namespaces inside of it.
        One SQL query answers; no table is opened.
        """
        from .store.search import Wanted, search_tables

        inside = None if namespace is None else parse_namespace(namespace)
        with self.store.read(single=True) as conn:
            return search_tables(conn, Wanted.of(text, tag), inside)
