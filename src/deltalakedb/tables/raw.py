"""What other libraries use of `deltalake` beside its interface: the class of a table, and `table._table`.

`table._table` is the table object of Rust there. Polars asks it for file sizes, and scripts for the location; other
attributes are those of the table itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.schema import Schema
    from deltalakedb.tables.reader import TableReader


class RawDeltaTable:
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
        _check_folders(self._table, paths)
        return {decode_path(path): size for path, size in zip(paths, sizes, strict=True)}

    def write(self, *, data: Any, batch_schema: Any, **options: Any) -> None:  # noqa: ARG002  the data has its schema
        """Write data; the `write_deltalake` of `deltalake` calls this, and Polars uses it."""
        from deltalakedb.writer import write_deltalake

        set_options = {name: value for name, value in options.items() if value is not None}
        write_deltalake(self._table, data, **set_options)


def class_for_others(own: type) -> type:
    """Return the class of a table as other libraries see it: that of `deltalake`, once it is loaded.

    Polars takes an object as a table only if `isinstance(table, deltalake.DeltaTable)`, and has no other hook for it.
    A subclass would need `deltalake` installed, and its compiled constructor opens the table's files itself, so the
    table says that it is one through `__class__`, as proxies do. `type(table)` stays our own class.
    """
    theirs = getattr(sys.modules.get("deltalake"), "DeltaTable", None)
    return own if theirs is None else theirs


def is_asked_by_polars() -> bool:
    """Return whether Polars calls the method that calls this function.

    `pl.scan_delta` reads the bounds of files from `get_add_actions`, as users do, and skips files by them; those of
    floats that other writers left make it lose NaN. It passes nothing that tells its call from that of a user, who is
    to get all bounds, as from `deltalake`, and it has no setting that leaves bounds out. Its name as the caller is all
    there is; if Polars moves its code, `test_friends.py` fails.
    """
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("polars.")


def without_doubtful_bounds(actions: pa.Table) -> pa.Table:
    """Return add actions without bounds that Polars would misinterpret: NaN is outside all bounds, those of booleans
    are often wrong, and some writers round decimals."""
    import pyarrow as pa

    for side in ("min", "max"):
        index = actions.column_names.index(side) if side in actions.column_names else -1
        if index < 0:
            continue
        names = [item.name for item in actions.schema.field(index).type if not _is_doubtful(item.type)]
        column = actions.column(index).combine_chunks()
        parts = [column.field(name) for name in names]
        actions = actions.remove_column(index)
        if parts:
            actions = actions.add_column(index, side, pa.StructArray.from_arrays(parts, names=names))
    return actions


def _is_doubtful(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    if pt.is_struct(kind):
        return any(_is_doubtful(item.type) for item in kind)
    return bool(pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_decimal(kind))


def _check_folders(table: TableReader, paths: list[str]) -> None:
    """Raise unless all files are in folders named after their partition values, where Polars looks for them."""
    columns = table._snapshot.metadata.partition_columns
    for path in paths if columns else ():
        folders = path.split("/")[:-1]
        if not all(any(folder.startswith(f"{name}=") for folder in folders) for name in columns):
            raise DeltaError(
                f"table {table.name}: the partition values of the file {path} are not in its path, where Polars looks "
                "for them; read the table with deltalakedb.polars"
            )
