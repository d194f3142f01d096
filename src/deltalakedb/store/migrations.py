"""Brings a database to the schema this code knows, up or down, one checksummed migration at a time."""

import hashlib
import re
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deltalakedb.exceptions import SchemaVersionError
from deltalakedb.store import name_forms
from deltalakedb.store.connection import Connection, SchemaMode, Store, UndefinedTableError
from deltalakedb.store.queries import SQL_FOLDER, statements

FOLDER = SQL_FOLDER / "migrations"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, there and back."""

    number: int
    name: str
    up: str
    down: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.up.replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration this code knows, and when the database took it (None: not yet)."""

    number: int
    name: str
    applied_at_ms: int | None


@cache
def known_migrations(folder: Path = FOLDER) -> tuple[Migration, ...]:
    """The migrations of this code, in order."""
    found = []
    for up in sorted(folder.glob("*.up.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)\.up\.sql", up.name)
        if match is None:
            raise ValueError(f"{up.name} is not named like 0001_initial.up.sql")
        down = up.with_name(up.name.replace(".up.sql", ".down.sql"))
        found.append(
            Migration(int(match[1]), match[2], up.read_text(encoding="utf-8"), down.read_text(encoding="utf-8"))
        )
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError("migrations are numbered 0001, 0002, ... without a gap")
    return tuple(found)


@cache
def _checksums(folder: Path) -> dict[int, str]:
    return {migration.number: migration.checksum for migration in known_migrations(folder)}


def status(store: Store, *, folder: Path = FOLDER) -> list[MigrationStatus]:
    """What is applied and what is not; refuses a database that is newer or other than this code."""
    applied = _applied(store, folder)
    return [MigrationStatus(m.number, m.name, applied.get(m.number)) for m in known_migrations(folder)]


def ensure_schema(store: Store, mode: SchemaMode, *, folder: Path = FOLDER) -> None:
    """Migrate when `mode` allows it, else refuse a database that is not at this code's version."""
    if mode == "manual" or len(_applied(store, folder)) == len(known_migrations(folder)):
        return
    if mode == "error":
        raise SchemaVersionError(
            f"{store!r} is not at the schema version of this code and sql.schema=error forbids changing it: "
            "run `dl migrate up`, or connect with sql.schema=create_if_missing"
        )
    migrate(store, folder=folder)


def migrate(store: Store, to: int | None = None, *, folder: Path = FOLDER) -> list[int]:
    """Bring the database to version `to` (the newest when None); the numbers of the migrations run, up or down."""
    known = known_migrations(folder)
    target = len(known) if to is None else to
    if not 0 <= target <= len(known):
        raise SchemaVersionError(f"there is no schema version {target}: this code knows 0 to {len(known)}")
    with store.write() as conn:
        conn.lock_schema()  # whoever waited here finds the work done
        rows = conn.all("select_migrations") if conn.has_table("dl_schema_migrations") else []
        applied = len(_checked(store, {row["migration"]: row for row in rows}, folder))
        if target >= applied:
            done = [_up(conn, migration) for migration in known[applied:target]]
        else:
            done = [_down(conn, migration) for migration in reversed(known[target:applied])]
        return done


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
    if migration.number == name_forms.FIRST_QUOTED:
        name_forms.quote_names(conn)
    if migration.number == 1:
        conn.run("insert_catalog", catalog_id=str(uuid.uuid4()), created_at_ms=now_ms)
    return migration.number


def _down(conn: Connection, migration: Migration) -> int:
    if migration.number == name_forms.FIRST_QUOTED:
        name_forms.unquote_names(conn)
    conn.run("delete_migration", migration=migration.number)
    conn.script(list(statements(migration.down, conn.dialect)))
    return migration.number


def _applied(store: Store, folder: Path) -> dict[int, int]:
    """Numbers of the applied migrations and when each was applied, checked against this code."""
    try:
        with store.read(single=True) as conn:
            rows = conn.all("select_migrations")
    except UndefinedTableError:
        return {}
    return _checked(store, {row["migration"]: row for row in rows}, folder)


def _checked(store: Store, rows: dict[int, dict[str, object]], folder: Path) -> dict[int, int]:
    checksums = _checksums(folder)
    newer = sorted(rows.keys() - checksums.keys())
    if newer:
        raise SchemaVersionError(
            f"{store!r} has schema version {newer[-1]}, this code knows {len(checksums)}: "
            "upgrade deltalakedb, or take the database back with the newer version's `dl migrate down`"
        )
    for number, row in sorted(rows.items()):
        if row["checksum"] != checksums[number]:
            raise SchemaVersionError(
                f"{store!r}: migration {number:04d} was applied with another text than this code has; "
                "the schema is not what this code expects, so nothing was changed"
            )
    if sorted(rows) != list(range(1, len(rows) + 1)):
        raise SchemaVersionError(f"{store!r} has applied migrations {sorted(rows)}, which leave a gap")
    return {number: int(str(row["applied_at_ms"])) for number, row in rows.items()}
