"""Opens a store: loads its engine, and migrates its schema, up or down, by checksummed migrations."""

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from deltalakedb.exceptions import CatalogUriError, MissingExtraError, SchemaVersionError
from deltalakedb.store.connection import Connection, SchemaMode, Store, UndefinedTableError
from deltalakedb.store.queries import SQL_FOLDER, statements

FOLDER = SQL_FOLDER / "migrations"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, up and down."""

    number: int
    name: str
    up: str
    down: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.up.replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration of this code, and when it was applied to the database (None: not yet)."""

    number: int
    name: str
    applied_at_ms: int | None


@cache
def known_migrations(folder: Path = FOLDER) -> tuple[Migration, ...]:
    """The migrations of this code, in order."""
    migrations = []
    for up in sorted(folder.glob("*.up.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)\.up\.sql", up.name)
        if match is None:
            raise ValueError(f"{up.name} is not named like 0001_initial.up.sql")
        down = up.with_name(up.name.replace(".up.sql", ".down.sql"))
        migrations.append(
            Migration(int(match[1]), match[2], up.read_text(encoding="utf-8"), down.read_text(encoding="utf-8"))
        )
    if [migration.number for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError("migrations are numbered 0001, 0002, ... without a gap")
    return tuple(migrations)


@cache
def _checksums(folder: Path) -> dict[int, str]:
    return {migration.number: migration.checksum for migration in known_migrations(folder)}


def migration_status(store: Store, *, folder: Path = FOLDER) -> list[MigrationStatus]:
    """Lists the migrations with their times; raises if the database is newer than this code, or differs from it."""
    applied = _applied(store, folder)
    return [MigrationStatus(m.number, m.name, applied.get(m.number)) for m in known_migrations(folder)]


def ensure_schema(store: Store, mode: SchemaMode, *, folder: Path = FOLDER) -> None:
    """Migrates if `mode` allows it; otherwise raises if the database is not at this code's version."""
    if mode == "manual" or len(_applied(store, folder)) == len(known_migrations(folder)):
        return
    if mode == "error":
        raise SchemaVersionError(
            f"{store!r} is not at the schema version of this code and sql.schema=error forbids changing it: "
            "run `dl migrate up`, or connect with sql.schema=create_if_missing"
        )
    migrate(store, folder=folder)


def migrate(store: Store, to: int | None = None, *, folder: Path = FOLDER) -> list[int]:
    """Migrates the database, up or down, to version `to` (None: the newest); returns the numbers of the migrations."""
    migrations = known_migrations(folder)
    target = len(migrations) if to is None else to
    if not 0 <= target <= len(migrations):
        raise SchemaVersionError(f"there is no schema version {target}: this code knows 0 to {len(migrations)}")
    with store.write() as conn:
        conn.lock_schema()  # a second process waits here, then finds nothing left to do
        rows = conn.all("select_migrations") if conn.has_table("dl_schema_migrations") else []
        applied = len(_checked(store, {row["migration"]: row for row in rows}, folder))
        if target >= applied:
            numbers = [_up(conn, migration) for migration in migrations[applied:target]]
        else:
            numbers = [_down(conn, migration) for migration in reversed(migrations[target:applied])]
        return numbers


def _up(conn: Connection, migration: Migration) -> int:
    conn.script(list(statements(migration.up, conn.dialect)))
    now_ms = conn.now_ms()
    conn.run(
        "insert_migration",
        migration=migration.number,
        name=migration.name,
        checksum=migration.checksum,
        applied_at_ms=now_ms,
    )
    if migration.number == 1:
        conn.run("insert_catalog", catalog_id=str(uuid.uuid4()), created_at_ms=now_ms)
    return migration.number


def _down(conn: Connection, migration: Migration) -> int:
    conn.run("delete_migration", migration=migration.number)
    conn.script(list(statements(migration.down, conn.dialect)))
    return migration.number


def _applied(store: Store, folder: Path) -> dict[int, int]:
    """When each applied migration was applied, by number; checked against this code."""
    try:
        with store.read(single=True) as conn:
            rows = conn.all("select_migrations")
    except UndefinedTableError:
        return {}
    return _checked(store, {row["migration"]: row for row in rows}, folder)


def _checked(store: Store, rows: dict[int, dict[str, object]], folder: Path) -> dict[int, int]:
    checksums = _checksums(folder)
    for number, checksum in checksums.items():
        if number in rows and rows[number]["checksum"] != checksum:
            raise SchemaVersionError(
                f"{store!r} was created by an unreleased version of deltalakedb: its migration {number:04d} is not the "
                "one of this version, which cannot migrate it. Nothing was changed. Run `dl import --rebuild` on a new "
                "database to fill it from the `_delta_log` folders of the tables"
            )
    newer = sorted(rows.keys() - checksums.keys())
    if newer:
        raise SchemaVersionError(
            f"{store!r} has schema version {newer[-1]}, this code knows {len(checksums)}: "
            "upgrade deltalakedb, or take the database back with the newer version's `dl migrate down`"
        )
    if sorted(rows) != list(range(1, len(rows) + 1)):
        raise SchemaVersionError(f"{store!r} has applied migrations {sorted(rows)}, which leave a gap")
    return {number: int(str(row["applied_at_ms"])) for number, row in rows.items()}


ENGINES = ("sqlite", "duckdb", "postgres")


def open_store(
    engine: str,
    target: str | Mapping[str, Any],
    *,
    schema: SchemaMode = "create_if_missing",
    max_connections: int = 4,
    busy_timeout_seconds: float = 30,
) -> Store:
    """Opens a database: `target` is a file path, or a Postgres DSN or its parts; `schema="manual"` skips migration."""
    if engine not in ENGINES:
        raise CatalogUriError(f"there is no engine {engine!r}; engines are {', '.join(ENGINES)}")
    if schema not in ("create_if_missing", "error", "manual"):
        raise CatalogUriError(f"sql.schema is create_if_missing or error, not {schema!r}")
    try:
        dialect = import_module(f"deltalakedb.store.dialects.{engine}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deltalakedb"):
            raise
        raise MissingExtraError(f"the engine {engine}", engine) from error
    store: Store = getattr(dialect, f"open_{engine}")(
        target, schema=schema, max_connections=max_connections, busy_timeout_seconds=busy_timeout_seconds
    )
    try:
        ensure_schema(store, schema)
    except BaseException:
        store.close()
        raise
    return store
