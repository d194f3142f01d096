"""Catalog: opens a store, resolves names, and hands out tables as they are now or were at one instant."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .catalog_view import CatalogView, resolve_instant
from .config import Config, load_config
from .exceptions import ConfigError, DeltaError, redact
from .instants import Instant, to_epoch_ms
from .names import parse_table_name
from .registered import TableInfo, require_table, table_info, within
from .storage_options import as_properties, options_of
from .store import Connection, SchemaMode, Store, open_store, registry
from .store.registry import TableRow
from .uri import CatalogUri, parse_catalog_uri

if TYPE_CHECKING:
    import pyarrow as pa

    from .mirror.follow import FollowResult
    from .mirror.validate import ValidationReport
    from .table import DeltaTable

Progress = Callable[[int], None]

_LONGEST_WAIT_MS = 1_000


def connect(uri: str | os.PathLike[str] | None = None, warehouse: str | None = None, **config: Any) -> Catalog:
    """Open a catalog, creating or migrating its schema as `sql.schema` says; without a URI, the one of `DL_CATALOG`."""
    origin = str(config.pop("origin", "python"))
    address, settings = locate_catalog(uri, warehouse=warehouse, **config)
    return Catalog(open_catalog_store(address, settings), address, settings, origin=origin)


def locate_catalog(uri: str | os.PathLike[str] | None = None, **config: Any) -> tuple[CatalogUri, Config]:
    """Where the catalog is, and the settings in force, from keywords, environment and configuration file."""
    settings = load_config({"catalog": uri, **config})
    if settings.catalog is None:
        raise ConfigError(
            "no catalog given: pass a path or a URI such as deltasql://sqlite//data/catalog.db, or set DL_CATALOG"
        )
    return parse_catalog_uri(settings.catalog), settings


def open_catalog_store(address: CatalogUri, settings: Config, *, schema: SchemaMode | None = None) -> Store:
    """The catalog's database; `schema` overrides `sql.schema` (`manual` does not look at the schema at all)."""
    return open_store(
        address.engine,
        address.target,
        schema=schema or settings.sql_schema,
        max_connections=settings.sql_max_connections,
        busy_timeout_seconds=settings.sql_busy_timeout,
    )


class Catalog:
    """A database of Delta logs. Close it, or use it in a `with` block."""

    def __init__(self, store: Store, uri: CatalogUri, config: Config, *, origin: str = "python") -> None:
        self.uri = uri
        self.config = config
        self.store = store
        self._origin = origin

    @property
    def actor(self) -> str:
        """Who the audit trail says it was: the setting `actor` (DL_ACTOR), else the user of the operating system."""
        return self.config.actor or _os_user()

    def __repr__(self) -> str:
        return f"Catalog({str(self.uri)!r})"

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- names

    def tables(self, namespace: str | None = None) -> list[str]:
        """The full names of all tables, or of those in one namespace and the namespaces inside it."""
        with self.store.read(single=True) as conn:
            rows = registry.list_tables(conn)
        return [row.full_name for row in within(rows, namespace)]

    def table_infos(self, namespace: str | None = None) -> list[TableInfo]:
        """What the registry and the heads know of each table; no table is opened."""
        with self.store.read() as conn:
            rows, heads = registry.list_tables(conn), registry.list_heads(conn)
        return [table_info(row, heads.get(row.table_id)) for row in within(rows, namespace)]

    def namespaces(self) -> list[str]:
        with self.store.read(single=True) as conn:
            return [row.namespace for row in registry.list_namespaces(conn)]

    def table(
        self, name: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Open a table: one row is read, however many files it has."""
        from .table import DeltaTable

        return DeltaTable.from_catalog(self, name, version=version, storage_options=storage_options)

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name; its location, versions and history stay."""
        old, new = parse_table_name(name), parse_table_name(new_name)
        with self.store.write() as conn:
            table = require_table(conn, old)
            now_ms = conn.now_ms()
            renamed = replace(table, namespace=new.namespace, name=new.name)
            registry.change_table(conn, renamed, at_ms=now_ms)
            self._audit(conn, now_ms, "rename", renamed, {"from": table.full_name, "to": renamed.full_name})

    def drop_table(self, name: str, purge: bool = False) -> None:
        """Take a table out of the catalog. A follower is only unregistered: its files belong to whoever writes them."""
        with self.store.write() as conn:
            table = require_table(conn, parse_table_name(name))
            if purge:
                raise DeltaError(
                    f"{table.full_name} is a {table.mode}: its files at {redact(table.location)} belong to others "
                    "and are not deleted; drop it without purge"
                )
            now_ms = conn.now_ms()
            registry.unregister_table(conn, table.table_id, at_ms=now_ms)
            self._audit(conn, now_ms, "drop", table, {"location": table.location, "mode": table.mode})

    # -- logs written by others

    def attach_table(
        self,
        path: str | os.PathLike[str],
        name: str,
        history: Literal["full", "latest"] = "full",
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> DeltaTable:
        """Keep a read-only copy of a table's log in SQL, which `follow` brings up to date. No file is written.

        Of the storage options only region, endpoint and the like are remembered; keys come from the environment, or are
        given again to `follow`.
        """
        from .mirror.importer import attach

        if history not in ("full", "latest"):
            raise ConfigError(f"history is full or latest, not {history!r}")
        target = parse_table_name(name)
        attach(
            self.store,
            os.fspath(path),
            namespace=target.namespace,
            name=target.name,
            history=history,
            storage_options=storage_options,
            properties=as_properties(storage_options),
            progress=progress,
            actor=self.actor,
            origin=self._origin,
        )
        return self.table(name, storage_options=storage_options)

    def import_table(
        self,
        path: str | os.PathLike[str],
        name: str,
        history: Literal["full", "latest"] = "full",
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> DeltaTable:
        """Attach a table and promote it: from then on SQL decides, and other writers meet a fence."""
        self.attach_table(path, name, history, storage_options, progress)
        return self.promote_table(name, storage_options, progress)

    def promote_table(
        self, name: str, storage_options: Mapping[str, str] | None = None, progress: Progress | None = None
    ) -> DeltaTable:
        """Make a follower, or a table once detached, a managed one; what is managed already stays as it is."""
        from .mirror.promote import promote

        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        options = options_of(row, storage_options)
        promote(self.store, row, storage_options=options, progress=progress, actor=self.actor, origin=self._origin)
        return self.table(name, storage_options=storage_options)

    def follow(
        self,
        name: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> list[FollowResult]:
        """Take in what others committed since, for one follower or all of them; a failure is raised at the end."""
        from .mirror.follow import follow

        with self.store.read() as conn:
            rows = registry.list_tables(conn) if name is None else [require_table(conn, parse_table_name(name))]
        results: list[FollowResult] = []
        failures: list[DeltaError] = []
        for row in rows:
            if row.mode != "follower":
                if name is not None:
                    raise DeltaError(f"{row.full_name} is {row.mode}: only a follower takes in commits from its files")
                continue
            options = options_of(row, storage_options)
            try:
                results.append(
                    follow(
                        self.store,
                        row,
                        storage_options=options,
                        progress=progress,
                        actor=self.actor,
                        origin=self._origin,
                    )
                )
            except DeltaError as error:
                failures.append(error)
        if failures:
            for other in failures[1:]:
                failures[0].add_note(str(other))
            raise failures[0]
        return results

    def validate(
        self,
        name: str,
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> ValidationReport:
        """Compare SQL with `_delta_log`, version by version; the report carries the first difference."""
        from .mirror.validate import validate

        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        return validate(self.store, row, storage_options=options_of(row, storage_options), progress=progress)

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
            rows = registry.read_audit(
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
        """The whole catalog as it was at one instant: a datetime, epoch milliseconds or a transaction id."""
        with self.store.read() as conn:
            at_ms, now_ms = resolve_instant(conn, instant), conn.now_ms()
        if at_ms - now_ms > _LONGEST_WAIT_MS:
            raise DeltaError(f"{instant} lies in the future: what the catalog will be then is not known yet")
        if at_ms >= now_ms:
            # An instant once read never changes, so it must have passed on the database's clock.
            time.sleep((at_ms - now_ms + 1) / 1000)
        return CatalogView(self, at_ms)

    def _audit(self, conn: Connection, at_ms: int, action: str, table: TableRow, details: Mapping[str, Any]) -> None:
        registry.write_audit(
            conn,
            action=action,
            at_ms=at_ms,
            actor=self.actor,
            origin=self._origin,
            table=table,
            details=details,
        )


def _os_user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in many containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
