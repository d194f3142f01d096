"""A cluster of two workers, `dl serve` on Postgres, an S3 bucket, and drivers of the cluster."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import deltalakedb as dl
from tests.cdc.conftest import postgres_version, source, source_clusters  # noqa: F401  fixtures, for captures
from tests.cluster.serving import TOKEN, ServedCatalog
from tests.fixtures.cluster import Cluster, running_cluster
from tests.fixtures.postgres import PostgresCluster
from tests.fixtures.s3 import S3, new_bucket
from tests.spark.over_s3 import s3a_conf
from tests.spark.peer import Peer

StartDriver = Callable[..., Peer]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def bucket(s3_endpoint: str) -> Iterator[S3]:
    """The warehouse's; the process of the tests reaches it by its environment, as `dl serve` does."""
    made = new_bucket(s3_endpoint)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in made.storage_options.items():
            patch.setenv(key, value)
        yield made


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def served(
    postgres_cluster: PostgresCluster, bucket: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedCatalog]:
    """Tables created by name are on S3, those with a LOCATION where it says."""
    folder = tmp_path_factory.mktemp("served")
    name = f"cluster_{folder.name.replace('-', '_')}"
    with psycopg.connect(postgres_cluster.dsn("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    host, port, user = postgres_cluster.socket_folder, postgres_cluster.port, postgres_cluster.user
    uri = f"deltasql://postgres/{name}?host={host}&port={port}&user={user}"
    dl.connect(uri).close()
    made = ServedCatalog(uri, bucket.uri("lake"), folder, bucket.storage_options)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def catalog(served: ServedCatalog) -> Iterator[dl.Catalog]:
    with dl.connect(served.uri, warehouse=served.warehouse) as opened:
        yield opened


@pytest.fixture(scope="module")
def start_driver(
    cluster: Cluster, served: ServedCatalog, s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartDriver]:
    """Starts drivers whose sessions are those of `dls.session(endpoint=...)`; all are closed at the end."""
    with ExitStack() as started:

        def start(**conf: str) -> Peer:
            scratch = tmp_path_factory.mktemp("driver")
            peer = Peer(scratch, **cluster.conf(scratch, **s3a_conf(s3_endpoint), **conf))
            started.callback(peer.close)
            peer.ask(
                "import os, deltalakedb.spark as dls\n"
                f"os.environ['DL_TOKEN'] = {TOKEN!r}\n"
                f"spark = dls.session(endpoint={served.url!r}, **sessions._settings)"
            )
            return peer

        yield start


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver) -> Peer:
    return start_driver()
