"""A catalog on SQLite or Postgres, a Spark session that is bridged to it, and the judge of both."""

from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from tests.fixtures.postgres import PostgresCluster
from tests.spark.judging import Judge, plain_readers
from tests.spark.stage import Stage


@dataclass(frozen=True, slots=True)
class Lake:
    """Tables of one namespace, by name and by path."""

    catalog: dl.Catalog
    spark: SparkSession
    judge: Judge
    namespace: str = "lake"

    def name(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def root(self, table: str) -> Path:
        """Where a table is; one that is not there yet will be in the warehouse."""
        if self.name(table) in self.catalog.tables():
            return Path(self.catalog.table(self.name(table)).table_uri.removeprefix("file://"))
        return Path(str(self.catalog.config.warehouse)) / self.namespace / table

    def stage(self, table: str, scratch: Path) -> Stage:
        return Stage(self.spark, self.name(table), f"dldb:///file{self.root(table)}", scratch)


def new_lake(catalog: dl.Catalog, namespace: str = "lake") -> Lake:
    """On the Spark that runs: a session of it that belongs to this catalog."""
    return Lake(catalog, dls.session(catalog), Judge(catalog, plain_readers()), namespace)


def new_catalog_uri(engine: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """An empty SQLite file, or an empty database of the tests' Postgres."""
    if engine == "sqlite":
        return f"deltasql://sqlite/{folder}/catalog.db"
    cluster: PostgresCluster = request.getfixturevalue("postgres_cluster")
    name = f"spark_{folder.name.replace('-', '_')}"
    with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    return f"deltasql://postgres/{name}?host={cluster.socket_folder}&port={cluster.port}&user={cluster.user}"
