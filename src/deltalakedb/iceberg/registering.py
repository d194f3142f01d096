"""Registers existing Iceberg tables and views by their metadata files, and copies such files for other catalogs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalakedb.exceptions import TableExistsError
from deltalakedb.iceberg import statements
from deltalakedb.iceberg.locations import open_file
from deltalakedb.iceberg.metadata_files import read_metadata_file
from deltalakedb.store.names import parse_table_name
from deltalakedb.transactions.drafts import IcebergFiles

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.iceberg.catalog import LoadedTable
    from deltalakedb.iceberg.statements import Step
    from deltalakedb.operations.target import WrittenFiles
    from deltalakedb.store.registry import TableRow
    from deltalakedb.transactions.drafts import Drafts


def register(
    catalog: Catalog,
    metadata_location: str,
    name: str,
    *,
    overwrite: bool = False,
    options: Mapping[str, str] | None = None,
) -> TableRow:
    """Register the table or view that a metadata file describes; its namespace is created if it does not exist."""
    target = parse_table_name(name)
    text = read_metadata_file(metadata_location, None, options)

    def statement(drafts: Drafts, _: WrittenFiles) -> Step:
        if b'"view-uuid"' in text and b'"table-uuid"' not in text:
            return statements.register_view(drafts, target, metadata_location, load=lambda _: text)
        return statements.register_table(drafts, target, metadata_location, overwrite=overwrite, load=lambda _: text)

    with catalog.begin(tables=[str(target)]) as tx:
        tx.use_iceberg_files(IcebergFiles(None, options))
        step = tx.run_statement(statement)
    return step.draft.row


def copy_metadata(loaded: LoadedTable, folder: str, options: Mapping[str, str] | None) -> str:
    """Write the metadata of a table or view into a folder, under the name of its file; return its location."""
    location = f"{folder.rstrip('/')}/{loaded.metadata_location.rpartition('/')[2]}"
    source, source_name = open_file(loaded.metadata_location, loaded.options)
    storage, name = open_file(location, options)
    if storage.put_if_absent(name, source.get(source_name)) == "exists":
        raise TableExistsError(f"there is a file {location} already")
    return location
