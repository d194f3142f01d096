"""PyIcebergCatalog: a catalog of this package as a `pyiceberg.catalog.Catalog`, in the same process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchViewError,
    ViewAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import (
    CommitTableResponse,
    CreateTableTransaction,
    StagedTable,
    Table,
    TableProperties,
)
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewMetadata, ViewVersion

from deltalakedb.exceptions import NotWritableError
from deltalakedb.iceberg.metadata.normal_form import wire_form
from deltalakedb.iceberg.pyiceberg_errors import raised_as_pyiceberg
from deltalakedb.iceberg.pyiceberg_requests import (
    table_request,
    to_identifier,
    to_json_objects,
    to_namespace,
    to_table_name,
    view_request,
)
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.store.names import name_key, namespace_parts, parse_table_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO

    from deltalakedb.iceberg.catalog import LoadedTable
    from deltalakedb.iceberg.sources import Changes, NamespaceChanges, Reads

__all__ = ["PyIcebergCatalog", "Table"]


class PyIcebergCatalog(Catalog):
    """The Iceberg tables and views of a catalog, of a transaction, or of a catalog at an instant, for PyIceberg.

    Identifiers are tuples, or texts such as `sales.orders`; a part with other characters than letters, digits and `_`
    may be in backticks. Delta tables are listed and read too; to write one, use `Catalog.table`.
    """

    def __init__(
        self,
        source: Reads,
        changes: Changes | None,
        namespace_changes: NamespaceChanges | None,
        *,
        read_only: str = "",
    ) -> None:
        """`read_only` is what the error says where `changes` or `namespace_changes` is None."""
        super().__init__("deltalakedb", uri=source.address)
        self._source = source
        self._table_changes = changes
        self._namespace_changes = namespace_changes
        self._read_only = read_only

    @property
    def _changes(self) -> Changes:
        if self._table_changes is None:
            raise NotWritableError(self._read_only)
        return self._table_changes

    @property
    def _namespaces(self) -> NamespaceChanges:
        if self._namespace_changes is None:
            raise NotWritableError(self._read_only)
        return self._namespace_changes

    # -- tables

    def open_table(self, name: str) -> Table:
        """Open a table by its name as this package writes it; errors are those of this package."""
        return self.to_table(self._source.load_table(parse_table_name(name)))

    def load_table(self, identifier: str | Identifier) -> Table:
        with raised_as_pyiceberg():
            return self.to_table(self._source.load_table(to_table_name(identifier)))

    def table_exists(self, identifier: str | Identifier) -> bool:
        with raised_as_pyiceberg():
            return self._source.table_exists(to_table_name(identifier))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        with raised_as_pyiceberg():
            text = to_namespace(namespace)
            return [(*namespace_parts(text), name) for name in self._source.list_tables(text)]

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        request = self._table_request(schema, location, partition_spec, sort_order, properties)
        with raised_as_pyiceberg():
            return self.to_table(self._changes.create_table(to_table_name(identifier), request))

    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        request = self._table_request(schema, location, partition_spec, sort_order, properties)
        with raised_as_pyiceberg():
            staged = self._changes.create_table(to_table_name(identifier), request, stage=True)
        return CreateTableTransaction(
            StagedTable(to_identifier(staged.name), _to_metadata(staged), "", self._source.open_io(staged), self)
        )

    def _table_request(
        self,
        schema: Schema | pa.Schema,
        location: str | None,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Properties,
    ) -> dict[str, Any]:
        version = int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
        converted = self._convert_schema_if_needed(schema, version)  # type: ignore[arg-type]
        return table_request(converted, spec, order, location, properties)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        name = to_table_name(identifier)
        with raised_as_pyiceberg():
            return self.to_table(self._changes.register_table(name, metadata_location, overwrite=overwrite))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        change = TableChange(to_table_name(table.name()), to_json_objects(requirements), to_json_objects(updates))
        with raised_as_pyiceberg(is_commit=True):
            (committed,) = self._changes.commit([change])
        return CommitTableResponse.model_construct(
            metadata=_to_metadata(committed), metadata_location=committed.metadata_location
        )

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        with raised_as_pyiceberg():
            target = to_table_name(to_identifier)
            self._changes.rename_table(to_table_name(from_identifier), target)
            return self.to_table(self._source.load_table(target))

    def drop_table(self, identifier: str | Identifier) -> None:
        with raised_as_pyiceberg():
            self._changes.drop_table(to_table_name(identifier))

    def purge_table(self, identifier: str | Identifier) -> None:
        with raised_as_pyiceberg():
            self._changes.drop_table(to_table_name(identifier), purge=True)

    def to_table(self, loaded: LoadedTable) -> Table:
        """Return a loaded table as PyIceberg's."""
        file_io = self._source.open_io(loaded)
        return Table(to_identifier(loaded.name), _to_metadata(loaded), loaded.metadata_location, file_io, self)

    # -- views

    def load_view(self, identifier: str | Identifier) -> View:
        with raised_as_pyiceberg(missing=NoSuchViewError):
            return _to_view(self._source.load_view(to_table_name(identifier)))

    def view_exists(self, identifier: str | Identifier) -> bool:
        with raised_as_pyiceberg(missing=NoSuchViewError):
            return self._source.view_exists(to_table_name(identifier))

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        with raised_as_pyiceberg():
            text = to_namespace(namespace)
            return [(*namespace_parts(text), name) for name in self._source.list_views(text)]

    def create_view(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        view_version: ViewVersion,
        location: str | None = None,
        properties: Properties = EMPTY_DICT,
    ) -> View:
        converted = self._convert_schema_if_needed(schema)
        with raised_as_pyiceberg(exists=ViewAlreadyExistsError):
            name = to_table_name(identifier)
            request = view_request(name, converted, view_version, location, properties)
            return _to_view(self._changes.create_view(name, request))

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        with raised_as_pyiceberg(exists=ViewAlreadyExistsError):
            return _to_view(self._changes.register_view(to_table_name(identifier), metadata_location))

    def drop_view(self, identifier: str | Identifier) -> None:
        with raised_as_pyiceberg(missing=NoSuchViewError):
            self._changes.drop_view(to_table_name(identifier))

    # -- namespaces

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces directly in one, or those at the top."""
        with raised_as_pyiceberg():
            above = namespace_parts(to_namespace(namespace)) if namespace else []
            if above:
                self._source.namespace_properties(to_namespace(namespace))
            keys = [name_key(part) for part in above]
            found = [namespace_parts(text) for text in self._source.namespaces()]
        return [
            tuple(parts)
            for parts in found
            if len(parts) == len(above) + 1 and [name_key(part) for part in parts[:-1]] == keys
        ]

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        try:
            self.load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            return False
        return True

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        with raised_as_pyiceberg():
            return self._source.namespace_properties(to_namespace(namespace))

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        with raised_as_pyiceberg(exists=NamespaceAlreadyExistsError):
            self._namespaces.create_namespace(to_namespace(namespace), properties)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        with raised_as_pyiceberg():
            self._namespaces.drop_namespace(to_namespace(namespace))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        removed = removals or set()
        overlap = removed & updates.keys()
        if overlap:
            raise ValueError(f"Updates and deletes have an overlap: {overlap}")
        with raised_as_pyiceberg():
            text = to_namespace(namespace)
            present = self._source.namespace_properties(text).keys() & removed
            changes: Mapping[str, str | None] = {**updates, **dict.fromkeys(present)}
            if changes:
                self._namespaces.set_namespace_properties(text, changes)
        return PropertiesUpdateSummary(
            removed=sorted(present), updated=list(updates), missing=sorted(removed - present)
        )

    # -- what PyIceberg asks of a catalog beside that

    def supports_server_side_planning(self) -> bool:
        return False

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Do nothing: the catalog deletes old metadata files itself, in a transaction after its commit."""

    def __repr__(self) -> str:
        return f"PyIcebergCatalog({self._source.address!r})"


def _to_metadata(loaded: LoadedTable) -> TableMetadata:
    return TableMetadataUtil.parse_obj(wire_form(loaded.metadata))


def _to_view(loaded: LoadedTable) -> View:
    return View(to_identifier(loaded.name), ViewMetadata.model_validate(dict(loaded.metadata)))
