"""RawTable: `table._table`, the table object of Rust in `deltalake`, which other libraries use.

It is not a public interface, but Polars asks it for file sizes, and scripts for the location. Other attributes are
those of the table itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalakedb.schema import Schema
    from deltalakedb.tables.reader import TableReader


class RawTable:
    """The internals of a table that other libraries use."""

    def __init__(self, table: TableReader) -> None:
        self._table: Any = table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._table, name)

    @property
    def schema(self) -> Schema:
        schema: Schema = self._table.schema()
        return schema

    def table_uri(self) -> str:
        return str(self._table.table_uri)

    def get_latest_version(self) -> int:
        return int(self._table._backing.newest().version)

    def get_add_file_sizes(self) -> dict[str, int]:
        from deltalakedb.log.protocol.paths import decode_path

        files = self._table.files(["path", "size"])
        paths, sizes = (files.column(name).to_pylist() for name in ("path", "size"))
        return {decode_path(path): size for path, size in zip(paths, sizes, strict=True)}

    def write(self, *, data: Any, batch_schema: Any, **options: Any) -> None:  # noqa: ARG002  the data has its schema
        """Write data; the `write_deltalake` of `deltalake` calls this, and Polars uses it."""
        from deltalakedb.writer import write_deltalake

        set_options = {name: value for name, value in options.items() if value is not None}
        write_deltalake(self._table, data, **set_options)
