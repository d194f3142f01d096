"""CatalogFiles: the part of Catalog for `_delta_log`: tables written by others, promoting and detaching tables."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from deltalakedb.catalog.entries import require_table
from deltalakedb.catalog.storage_options import as_properties, options_of
from deltalakedb.exceptions import ConfigError, DeltaError
from deltalakedb.runtime.config import Config
from deltalakedb.store import Store, registry
from deltalakedb.store.names import parse_table_name

if TYPE_CHECKING:
    from deltalakedb.mirror.engine import MirrorEngine
    from deltalakedb.mirror.follow import FollowResult
    from deltalakedb.mirror.rebuild import Rebuilt
    from deltalakedb.mirror.repair import Repaired
    from deltalakedb.mirror.resolve import Decision, Resolution
    from deltalakedb.mirror.validate import ValidationReport
    from deltalakedb.store.gc import GcReport
    from deltalakedb.store.registry import TableRow
    from deltalakedb.table import DeltaTable

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]


class CatalogFiles(ABC):
    """The methods of `Catalog` that work on the logs of tables in files."""

    store: Store
    config: Config
    origin: str

    @property
    @abstractmethod
    def actor(self) -> str: ...

    @property
    @abstractmethod
    def mirror(self) -> MirrorEngine: ...

    @abstractmethod
    def storage_options_of(self, table: TableRow) -> dict[str, str] | None: ...

    @abstractmethod
    def use_options(self, table: TableRow, options: Mapping[str, str] | None) -> None: ...

    @abstractmethod
    def table(
        self, name: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTable: ...

    def attach_table(
        self,
        path: str | os.PathLike[str],
        name: str,
        history: Literal["full", "latest"] = "full",
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> DeltaTable:
        """Keep a read-only copy of a table's log in SQL; `follow` updates it. No file is written.

        Of the storage options only region, endpoint and the like are stored; credentials come from the environment, or
        must be passed to `follow` again.
        """
        from deltalakedb.mirror.follow import attach

        if history not in ("full", "latest"):
            raise ConfigError(f"history is full or latest, not {history!r}")
        target = parse_table_name(name)
        result = attach(
            self.store,
            os.fspath(path),
            namespace=target.namespace,
            name=target.name,
            history=history,
            storage_options=storage_options,
            properties=as_properties(storage_options),
            progress=progress,
            actor=self.actor,
            origin=self.origin,
        )
        if result.was_detached:
            self.follow(name, storage_options, progress)
        return self.table(name, storage_options=storage_options)

    def import_table(
        self,
        path: str | os.PathLike[str],
        name: str,
        history: Literal["full", "latest"] = "full",
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> DeltaTable:
        """Attach a table and promote it: from then on SQL decides, and a fence in the files stops other writers."""
        self.attach_table(path, name, history, storage_options, progress)
        return self.promote_table(name, storage_options, progress)

    def promote_table(
        self, name: str, storage_options: Mapping[str, str] | None = None, progress: Progress | None = None
    ) -> DeltaTable:
        """Make a follower or detached table managed; a managed table stays as it is."""
        from deltalakedb.mirror.promote import promote

        row = self._row(name, storage_options)
        options = options_of(row, storage_options)
        promotion = promote(
            self.store,
            row,
            storage_options=options,
            progress=progress,
            actor=self.actor,
            origin=self.origin,
            conditional_put=self.config.mirror_conditional_put,
        )
        self.mirror.explain_table(promotion.table)
        return self.table(name, storage_options=storage_options)

    def detach_table(self, name: str, storage_options: Mapping[str, str] | None = None) -> DeltaTable:
        """Give a managed table back to its files: mirror everything, and remove the fence, so that anyone may write."""
        from deltalakedb.mirror.detach import detach

        row = self._row(name, storage_options)
        detach(
            self.store,
            row,
            self.mirror,
            actor=self.actor,
            origin=self.origin,
            retries=self.config.concurrency_retries,
        )
        return self.table(name, storage_options=storage_options)

    def resolve_table(
        self,
        name: str,
        decision: Decision,
        storage_options: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> Resolution:
        """Reconcile SQL and the files after another writer, or a restored backup, made them differ.

        `adopt` imports the commits in the files and repeats ours after them; `overrule` undoes them by a new commit.
        """
        from deltalakedb.mirror.resolve import resolve

        row = self._row(name, storage_options)
        options = options_of(row, storage_options)
        resolution = resolve(
            self.store, row, decision, storage_options=options, actor=self.actor, origin=self.origin, dry_run=dry_run
        )
        if not dry_run:
            self.mirror.mirror_table(resolution.table)
        return resolution

    def rebuild(
        self,
        prefix: str | os.PathLike[str],
        take_over: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Rebuilt:
        """Fill this empty catalog from the mirrors below `prefix`: names, ids, versions and transactions.

        It becomes the catalog that managed them; if there were several, `take_over` says which. Iceberg tables and
        views below `prefix` are registered with their newest metadata file, under the names of their folders.
        """
        from deltalakedb.iceberg.rebuilding import find_iceberg
        from deltalakedb.mirror.rebuild import rebuild
        from deltalakedb.store.gc import DAY_MS

        iceberg, left_out = find_iceberg(prefix, storage_options, self.config.warehouse)
        rebuilt = rebuild(
            self.store,
            prefix,
            take_over=take_over,
            storage_options=storage_options,
            properties=as_properties(storage_options),
            progress=progress,
            actor=self.actor,
            origin=self.origin,
            drop_retention_ms=round(self.config.catalog_drop_retention * DAY_MS),
            iceberg=iceberg,
        )
        for entry in rebuilt.tables:
            if not entry.dropped and entry.table.is_delta:
                self.mirror.explain_table(entry.table)
        return replace(rebuilt, left_out=(*rebuilt.left_out, *left_out))

    def _row(self, name: str, storage_options: Mapping[str, str] | None) -> TableRow:
        """Return a Delta table's registry row; `storage_options` apply from now on, also to its mirror."""
        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        if not row.is_delta:
            raise registry.not_delta(row)
        self.use_options(row, storage_options)
        return row

    def follow(
        self,
        name: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> list[FollowResult]:
        """Import new commits of one follower, or of all; a failure is raised at the end."""
        from deltalakedb.mirror.follow import follow

        with self.store.read() as conn:
            rows = registry.list_tables(conn) if name is None else [require_table(conn, parse_table_name(name))]
        results: list[FollowResult] = []
        failures: list[DeltaError] = []
        for row in rows:
            if row.mode != "follower":
                if name is not None and not row.is_delta:
                    raise registry.not_delta(row)
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
                        origin=self.origin,
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
        """Compare SQL with `_delta_log`, version by version; the report says where they differ and what to do.

        Of an Iceberg table or view the newest version is compared with its metadata file.
        """
        from deltalakedb.mirror.validate import validate

        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        if not row.is_delta:
            from deltalakedb.iceberg.validating import validate as validate_iceberg

            return validate_iceberg(self.store, row, options_of(row, storage_options))
        return validate(self.store, row, storage_options=options_of(row, storage_options), progress=progress)

    def repair(self, name: str, storage_options: Mapping[str, str] | None = None) -> Repaired:
        """Restore files that a managed table's log has lost since it was mirrored; nothing is overwritten."""
        from deltalakedb.mirror.repair import repair
        from deltalakedb.store.gc import DAY_MS

        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        if not row.is_delta:
            raise registry.not_delta(row)
        return repair(
            self.store,
            row,
            deleted_file_ms=self.config.retention_deleted_file_days * DAY_MS,
            storage_options=options_of(row, storage_options),
            actor=self.actor,
            origin=self.origin,
            conditional_put=self.config.mirror_conditional_put,
        )

    def gc(
        self,
        name: str | None = None,
        *,
        dry_run: bool = False,
        audit_days: float | None = None,
        progress: Progress | None = None,
    ) -> GcReport:
        """Remove history from SQL that is older than the retention, of one table or of the whole catalog.

        A table's `delta.logRetentionDuration` overrides `retention.log_days`. Every version since then can still be
        opened. The audit trail is kept, unless `audit_days` limits it.
        """
        from deltalakedb.store.gc import DAY_MS, Retention, collect_garbage

        table = None
        if name is not None:
            with self.store.read() as conn:
                table = require_table(conn, parse_table_name(name))
        retention = Retention(
            self.config.retention_log_days * DAY_MS,
            self.config.retention_deleted_file_days * DAY_MS,
            None if audit_days is None else int(audit_days * DAY_MS),
        )
        report = collect_garbage(
            self.store,
            retention,
            table=table,
            dry_run=dry_run,
            progress=progress,
            actor=self.actor,
            origin=self.origin,
        )
        if not dry_run:
            self._clean_up_for_iceberg([item.table for item in report.tables if not item.dropped])
        return report

    def _clean_up_for_iceberg(self, tables: Sequence[TableRow]) -> None:
        """Delete what was written for Iceberg clients of Delta tables and is needed no more."""
        from deltalakedb.iceberg.delta.cleaning import clean_up

        with self.store.read() as conn:
            now_ms = conn.now_ms()
        for table in tables:
            if table.is_delta:
                try:
                    clean_up(self.store, table, self.storage_options_of(table), now_ms=now_ms)
                except DeltaError as error:
                    logger.warning("files for Iceberg clients of %s are left behind: %s", table.full_name, error)
