"""Catalog: opens a store, and hands out tables, transactions and the catalog as it was at one instant."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .catalog_descriptions import CatalogDescriptions
from .catalog_names import CatalogNames
from .catalog_view import CatalogView, settle_instant
from .config import Config, load_config
from .exceptions import ConfigError
from .instants import Instant, to_epoch_ms
from .names import parse_table_name
from .registered import TableInfo, is_promoted_by_writes, require_table, table_info, within
from .storage_options import options_of
from .store import SchemaMode, Store, open_store, registry
from .store.audit import read_audit
from .store.reader import SqlTxnLogReader
from .store.registry import TableRow
from .telemetry import record_spans
from .uri import CatalogUri, parse_catalog_uri

if TYPE_CHECKING:
    import pyarrow as pa

    from .definitions.table import PropertyValue, SchemaLike
    from .mirror.engine import MirrorEngine
    from .store.writer import SqlTxnLogWriter
    from .table import DeltaTable
    from .transactions.transaction import CatalogTransaction

Progress = Callable[[int], None]


def connect(uri: str | os.PathLike[str] | None = None, warehouse: str | None = None, **config: Any) -> Catalog:
    """Open a catalog, creating or migrating its schema as `sql.schema` says; without a URI, the one of `DL_CATALOG`."""
    record_spans()
    return open_catalog(uri, warehouse, **config)


def open_catalog(uri: str | os.PathLike[str] | None = None, warehouse: str | None = None, **config: Any) -> Catalog:
    """The same behind an address of a table: what `deltalake` names puts no span into the application's tracer."""
    origin = str(config.pop("origin", "python"))
    address, settings = locate_catalog(uri, warehouse=warehouse, **config)
    if ":/" in (settings.warehouse or ""):
        from .mirror.put_lock import check_warehouse

        check_warehouse(settings)
    return Catalog(open_catalog_store(address, settings), address, settings, origin=origin)


def begin(
    uri: str | os.PathLike[str] | None = None,
    message: str | None = None,
    lock: Sequence[str] | None = None,
    **config: Any,
) -> CatalogTransaction:
    """A transaction on a catalog that is opened for it, and closed when the transaction ends."""
    from .transactions.transaction import CatalogTransaction

    catalog = connect(uri, **config)
    try:
        return CatalogTransaction(catalog, message=message, lock=lock, owns_catalog=True)
    except BaseException:
        catalog.close()
        raise


def locate_catalog(uri: str | os.PathLike[str] | None = None, **config: Any) -> tuple[CatalogUri, Config]:
    """Where the catalog is, and the settings in force, from keywords, environment and configuration file."""
    settings = load_config({"catalog": uri, **config})
    if settings.catalog is None:
        raise ConfigError(
            "no catalog given: pass a path or a URI such as deltasql://sqlite//data/catalog.db (dl: --catalog), or set "
            "DL_CATALOG"
        )
    address = parse_catalog_uri(settings.catalog)
    if address.warehouse is not None and config.get("warehouse") is None:
        settings = replace(settings, warehouse=address.warehouse)
    return address, settings


def open_catalog_store(address: CatalogUri, settings: Config, *, schema: SchemaMode | None = None) -> Store:
    """The catalog's database; `schema` overrides `sql.schema` (`manual` does not look at the schema at all)."""
    return open_store(
        address.engine,
        address.target,
        schema=schema or settings.sql_schema,
        max_connections=settings.sql_max_connections,
        busy_timeout_seconds=settings.sql_busy_timeout,
    )


class Catalog(CatalogDescriptions, CatalogNames):
    """A database of Delta logs. Close it, or use it in a `with` block."""

    def __init__(self, store: Store, uri: CatalogUri, config: Config, *, origin: str = "python") -> None:
        self.uri = uri
        self.config = config
        self.store = store
        self.origin = origin
        self._given_options: dict[str, dict[str, str]] = {}

    @property
    def actor(self) -> str:
        """Who the audit trail says it was: the setting `actor` (DL_ACTOR), else the user of the operating system."""
        return self.config.actor or _os_user()

    def __repr__(self) -> str:
        return f"Catalog({str(self.uri)!r})"

    def close(self) -> None:
        """Finish what the mirror still has to do, for a few seconds at most, and let go of the database."""
        if "mirror" in self.__dict__:
            self.mirror.close()
        self.store.close()

    @cached_property
    def writer(self) -> SqlTxnLogWriter:
        """What decides over commits."""
        from .store.writer import SqlTxnLogWriter

        return SqlTxnLogWriter(
            self.store,
            retries=self.config.concurrency_retries,
            lock_wait_seconds=self.config.concurrency_lock_timeout,
        )

    @cached_property
    def mirror(self) -> MirrorEngine:
        """What copies commits into `_delta_log`; made with the first commit."""
        from .mirror.engine import MirrorEngine

        return MirrorEngine(self.store, config=self.config, options_of=self.storage_options_of, address=str(self.uri))

    def use_options(self, table: TableRow, options: Mapping[str, str] | None) -> None:
        """Storage options given for a table hold as long as this catalog is open; only some of them are ever stored."""
        if options:
            self._given_options[table.location] = {**self._given_options.get(table.location, {}), **options}

    def storage_options_of(self, table: TableRow) -> dict[str, str] | None:
        """What the catalog remembers for a table, overridden by what was given since it was opened."""
        return options_of(table, self._given_options.get(table.location))

    # -- transactions

    def begin(
        self, message: str | None = None, lock: Sequence[str] | None = None, tables: Sequence[str] | None = None
    ) -> CatalogTransaction:
        """Begin a transaction over any number of tables; use it in a `with` block.

        `lock` names tables that will be rewritten for long: others who would change their rows wait, for a while.
        `tables` says that no others will be used, which makes the beginning cheaper in a catalog of thousands.
        """
        from .transactions.transaction import CatalogTransaction

        return CatalogTransaction(self, message=message, lock=lock, tables=tables)

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- names

    def tables(self, namespace: str | None = None, *, dropped: bool = False) -> list[str]:
        """The full names of all tables, or of those in one namespace and the namespaces inside it.

        With `dropped` those that can be undropped instead; `dropped_tables` tells more of them.
        """
        if dropped:
            return [table.full_name for table in self.dropped_tables(namespace)]
        with self.store.read(single=True) as conn:
            rows = registry.list_tables(conn)
        return [row.full_name for row in within(rows, namespace)]

    def table_infos(self, namespace: str | None = None) -> list[TableInfo]:
        """What the registry and the heads know of each table; no table is opened."""
        with self.store.read() as conn:
            rows, heads = registry.list_tables(conn), registry.list_heads(conn)
        return [table_info(row, heads.get(row.table_id)) for row in within(rows, namespace)]

    def table_info(self, name: str) -> TableInfo:
        """What the registry and the head know of one table; it is not opened."""
        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
            return table_info(row, registry.read_head(conn, row.table_id))

    def table(
        self, name: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Open a table: one row is read, however many files it has."""
        from .table import DeltaTable

        return DeltaTable.from_catalog(self, name, version=version, storage_options=storage_options)

    def create_table(
        self,
        name: str,
        schema: SchemaLike | None = None,
        partition_by: Sequence[str] | str = (),
        *,
        location: str | os.PathLike[str] | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        mode: Literal["error", "ignore"] = "error",
    ) -> DeltaTable:
        """A new, empty, managed table; without a location its files go below the warehouse.

        Where a Delta table is at the location already, it is attached under this name, and its first write through the
        catalog makes it managed (`catalog.promote_on_write`). Give `schema=None` to take it as it is.
        """
        if location is not None and self.attach_existing(
            name,
            location,
            schema,
            partition_by,
            properties=properties,
            description=description,
            storage_options=storage_options,
        ):
            return self.table(name, storage_options=storage_options)
        if schema is None:
            raise ConfigError(f"the table {name} needs a schema, unless a Delta table is at its location already")
        with self.begin(tables=[name]) as tx:
            tx.create_table(
                name,
                schema,
                partition_by,
                location=location,
                properties=properties,
                description=description,
                storage_options=storage_options,
                mode=mode,
            )
        return self.table(name, storage_options=storage_options)

    def attach_existing(
        self,
        name: str,
        location: str | os.PathLike[str],
        schema: SchemaLike | None = None,
        partition_by: Sequence[str] | str = (),
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> bool:
        """Attach a Delta table that is at a location under this name, as CREATE at that location does; False: none is.

        Its first write through the catalog makes it managed. One that `attach_table` attached stays a follower.
        """
        from .definitions.table import to_schema, to_texts
        from .files.location import canonical_location
        from .paths import Wanted, attach_existing

        target, at = parse_table_name(name), canonical_location(location, storage_options)
        with self.store.read() as conn:
            if registry.resolve_table(conn, target.namespace, target.name) or registry.table_by_location(conn, at):
                return False  # said by the transaction that would create it
        columns = [partition_by] if isinstance(partition_by, str) else partition_by
        wanted = Wanted(None if schema is None else to_schema(schema), columns, to_texts(properties or {}), description)
        return attach_existing(self, target, at, wanted, storage_options)

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name; its location, versions and history stay."""
        with self.begin(tables=[name, new_name]) as tx:
            tx.rename_table(name, new_name)

    def set_properties(self, name: str, properties: Mapping[str, PropertyValue]) -> None:
        """Set table properties; where one needs a table feature, the table's protocol is raised with it."""
        with self.begin(tables=[name]) as tx:
            tx.set_properties(name, properties)

    def add_columns(self, name: str, columns: SchemaLike) -> None:
        """Add nullable columns at the end of the schema: a schema, fields, or text such as "note string, at date"."""
        with self.begin(tables=[name]) as tx:
            tx.add_columns(name, columns)

    def drop_table(self, name: str, purge: bool = False) -> None:
        """Take a table out of the catalog. With `purge` the files of a managed table are deleted with it.

        A table whose folder the catalog chose can be undropped for `catalog.drop_retention`. One whose location was
        given is detached first, so that its files are complete and free for any writer; a follower's belong to others.
        """
        with self.store.read() as conn:
            table = require_table(conn, parse_table_name(name))
        table = self.finish_promotion(table)
        if table.mode == "managed" and table.files_owner == "user" and not purge:
            from .mirror.detach import detach
            from .store.registry_check import check_can_drop

            check_can_drop(table.full_name, SqlTxnLogReader(self.store, table).snapshot().metadata)
            detach(self.store, table, self.mirror, actor=self.actor, origin=self.origin)
        with self.begin(tables=[name]) as tx:
            tx.drop_table(name, purge)

    def finish_promotion(self, table: TableRow) -> TableRow:
        """The table, managed if a promotion of it died: that left our fence in the files, and a drop takes it off."""
        from .mirror.promote import has_own_fence

        if not is_promoted_by_writes(table) or not has_own_fence(self.store, table, self.storage_options_of(table)):
            return table
        self.promote_table(table.full_name)
        return replace(table, mode="managed")

    # -- who did what, when

    def history(
        self, name: str, limit: int | None = None, since: Instant | None = None, until: Instant | None = None
    ) -> list[dict[str, Any]]:
        """A table's commits, newest first, in the shape of `deltalake`: the fields of commitInfo and the version."""
        return self.table(name).history(limit, since=since, until=until)

    def audit(
        self,
        since: Instant | None = None,
        until: Instant | None = None,
        actor: str | None = None,
        table: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """The audit trail, newest first."""
        with self.store.read() as conn:
            table_id = require_table(conn, parse_table_name(table)).table_id if table is not None else None
            rows = read_audit(
                conn,
                since_ms=None if since is None else to_epoch_ms(since),
                until_ms=None if until is None else to_epoch_ms(until),
                actor=actor,
                table_id=table_id,
                limit=limit,
            )
        return [
            {
                "at_ms": row.at_ms,
                "actor": row.actor,
                "origin": row.origin,
                "action": row.action,
                "table": row.table_name,
                "details": row.details,
            }
            for row in rows
        ]

    def sql(self, text: str) -> pa.Table:
        """Run one SELECT over the `dl_*` tables and views, on a connection that cannot write."""
        return self.store.select(text)

    def at(self, instant: Instant) -> CatalogView:
        """The whole catalog as it was at one instant: a datetime, epoch milliseconds or a transaction id.

        What it shows never changes: an instant is read only once nothing can be committed at it any more.
        """
        return CatalogView(self, settle_instant(self.store, instant))


@cache
def _os_user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in many containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
