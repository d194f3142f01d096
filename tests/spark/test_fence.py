"""Nothing goes around the catalog: other writers are refused by the fence, and without the endpoint nobody commits."""

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.log.protocol.fence import FEATURE
from tests.spark.judging import assert_rows
from tests.spark.lake import Lake, new_lake
from tests.spark.peer import Peer, PeerError

TOKEN = "a-token-of-the-tests"
RETRY_SECONDS = 2
ROWS = [(1, "a"), (2, "b"), (3, "c")]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table written by a bridged session: two files, and a deletion vector."""
    assert spark.version
    folder = tmp_path_factory.mktemp("fence")
    with dl.connect(folder / "catalog.db", warehouse=str(folder / "lake")) as catalog:
        made = new_lake(catalog, "fence")
        made.spark.sql(
            "create table fence.t using delta tblproperties ('delta.enableDeletionVectors' = 'true') as "
            "select /*+ coalesce(1) */ * from values (1L, 'a'), (2L, 'b'), (4L, 'd') as v(id, name)"
        )
        made.spark.sql("insert into fence.t values (3, 'c')")
        made.spark.sql("delete from fence.t where id = 4").collect()
        yield made


@pytest.fixture
def unchanged(lake: Lake) -> Iterator[Path]:
    """The table's folder; afterwards its log is the same, and SQL's version too. Nobody of ours writes meanwhile."""
    assert lake.catalog.mirror.flush(30)
    root = lake.root("t")
    before, version = log_of(root), lake.catalog.table("fence.t").version()
    yield root
    assert log_of(root) == before
    assert lake.catalog.table("fence.t").version() == version


def log_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "_delta_log").iterdir()}


# ---- a Spark without the bridge

REFUSED = {
    "append": "insert into {t} values (9, 'n')",
    "overwrite": "insert overwrite {t} values (9, 'n')",
    "delete": "delete from {t} where id = 1",
    "update": "update {t} set name = 'x'",
    "merge": "merge into {t} t using (select 9L id) s on t.id = s.id when matched then delete",
    "optimize": "optimize {t}",
    "vacuum": "vacuum {t}",
    "alter": "alter table {t} set tblproperties ('a' = 'b')",
    "drop the fence": f"alter table {{t}} drop feature {FEATURE}",
    "restore": "restore table {t} to version as of 0",
    "replace": "create or replace table {t} using delta as select 1L as id",
}


@pytest.fixture(scope="module")
def unbridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    peer = Peer(tmp_path_factory.mktemp("unbridged"))
    peer.ask("spark = sessions.plain()")
    yield peer
    peer.close()


def test_an_unbridged_spark_reads_the_mirror_and_is_refused_as_a_writer(unbridged: Peer, unchanged: Path) -> None:
    table = f"delta.`{unchanged}`"
    assert [tuple(row) for row in sorted(unbridged.sql(f"select * from {table}"))] == ROWS
    assert unbridged.sql(f"select count(*) from {table} version as of 0") == [[3]]
    answers = {statement: outcome(unbridged, text.format(t=table)) for statement, text in REFUSED.items()}
    wrong = {statement: answer for statement, answer in answers.items() if FEATURE not in answer}
    assert wrong == {}


def outcome(peer: Peer, statement: str) -> str:
    """What it says when it refuses, else what it did."""
    try:
        return f"done: {peer.sql(statement)}"
    except PeerError as refused:
        return str(refused)


def test_an_unbridged_spark_is_not_taken_for_a_bridged_one(unbridged: Peer, unchanged: Path, tmp_path: Path) -> None:
    unbridged.ask("import deltalakedb.spark as dls")
    with pytest.raises(PeerError, match="ConfigError: Spark runs in this process without the bridge"):
        unbridged.ask(f"dls.session({str(tmp_path / 'catalog.db')!r})")
    with pytest.raises(PeerError, match="ConfigError: this Spark session has no bridge to a catalog"):
        unbridged.ask("dls.bridge_of(spark)")
    with pytest.raises(PeerError, match="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"):
        unbridged.ask(f"spark.range(1).write.format('delta').mode('append').save({str(unchanged)!r})")


def test_an_unbridged_spark_streams_from_the_mirror(unbridged: Peer, unchanged: Path, tmp_path: Path) -> None:
    """Once the first version is read, the delete of the second is something that a stream does not follow."""
    code = f"""
reader = spark.readStream.format("delta").option("skipChangeCommits", "true").load({str(unchanged)!r})
writer = reader.writeStream.format("parquet").option("checkpointLocation", {str(tmp_path / "c")!r})
writer.trigger(availableNow=True).start({str(tmp_path / "out")!r}).awaitTermination(120)
answer = spark.read.parquet({str(tmp_path / "out")!r}).count()
"""
    assert unbridged.ask(code) == 3


def test_deltalake_reads_the_mirror_and_is_refused_as_a_writer(unchanged: Path) -> None:
    table = deltalake.DeltaTable(unchanged)
    assert_rows(pa.RecordBatchReader.from_stream(table.scan()).read_all(), ROWS)
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        deltalake.write_deltalake(table, pa.table({"id": [9], "name": ["n"]}), mode="append")
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        table.delete("id = 1")


def test_a_bridged_session_that_takes_the_plain_path_is_refused_too(lake: Lake, unchanged: Path) -> None:
    """The mirror is one more plain Delta table to it: names and dldb: paths alone lead through the catalog."""
    assert lake.spark.read.format("delta").load(str(unchanged)).count() == 3
    with pytest.raises(Exception, match=FEATURE):
        lake.spark.sql(f"insert into delta.`{unchanged}` values (9, 'n')").collect()


# ---- an endpoint that is gone


@dataclass(slots=True)
class Serving:
    """`dl serve --bridge` in a process of its own, always at the same port."""

    folder: Path
    port: int
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        token = self.folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", "serve", "--bridge"]
        command += ["--port", str(self.port), "--token-file", str(token), "--catalog", str(self.folder / "catalog.db")]
        command += ["--warehouse", str(self.folder / "lake")]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("DL_")}
        with (self.folder / "serve.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ)
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 60)[0], "dl serve did not start"
        assert self.url in self.process.stdout.readline()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture
def serving(lake: Lake) -> Iterator[Serving]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Serving(Path(str(lake.catalog.config.warehouse)).parent, port)
    server.start()
    yield server
    server.kill()


def test_without_the_endpoint_nothing_is_read_or_written_and_the_error_says_so_in_time(
    lake: Lake, serving: Serving, tmp_path: Path
) -> None:
    session = dls.session(endpoint=serving.url, token=TOKEN)
    session.conf.set("deltalakedb.retry.seconds", RETRY_SECONDS)
    session.sql("create table fence.down using delta as select 1L as id")
    root = lake.root("down")
    path = f"dldb:///file{root}"
    frame = session.range(5, 6)
    serving.kill()
    files, version = {str(file) for file in root.rglob("*")}, lake.catalog.table("fence.down").version()
    statements: dict[str, Callable[[], object]] = {
        "append by name": lambda: session.sql("insert into fence.down values (2)").collect(),
        "append by path": lambda: frame.write.format("delta").mode("append").save(path),
        "update": lambda: session.sql("update fence.down set id = 7").collect(),
        "read": lambda: session.sql("select * from fence.down").collect(),
        "create": lambda: session.sql("create table fence.never (id bigint) using delta"),
        "create by path": lambda: frame.write.format("delta").save(f"dldb:///file{root.parent}/never"),
        "optimize": lambda: session.sql(f"optimize delta.`{path}`").collect(),
    }
    for statement, run in statements.items():
        began = time.monotonic()
        with pytest.raises(Exception, match=serving.url) as refused:
            run()
        assert time.monotonic() - began < 60, statement
        assert TOKEN not in str(refused.value)
    assert {name for name in map(str, root.rglob("*")) if "_delta_log" in name or "_dldb" in name} <= files
    assert lake.catalog.table("fence.down").version() == version
    assert "fence.never" not in lake.catalog.tables()
    assert not (root.parent / "never" / "_delta_log").exists()
    serving.start()
    session.sql("insert into fence.down values (2)").collect()
    assert sorted(row.id for row in session.table("fence.down").collect()) == [1, 2]
    lake.judge.check("fence.down", lake.stage("down", tmp_path))
