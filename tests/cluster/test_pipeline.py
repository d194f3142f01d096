"""A pipeline on a cluster of two workers: tables on S3 and on local disk, through `dl serve` on Postgres."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import deltalakedb as dl
from deltalakedb.mirror.reconciler import Reconciler
from tests.cluster.readers import rows_by_deltalake, rows_by_duckdb
from tests.cluster.serving import ServedCatalog
from tests.fixtures.s3 import S3
from tests.spark.peer import Peer, PeerError

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

Place = Callable[[str], str]


@pytest.fixture(params=["s3", "disk"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def located(storage: str, disk: Path) -> Place:
    """The LOCATION clause of a table: none on S3, where the warehouse is."""
    return lambda table: f"location '{disk / table}'" if storage == "disk" else ""


def check_mirror(catalog: dl.Catalog, bucket: S3, table: str, wanted: list[tuple[object, ...]]) -> None:
    """Readers that know nothing of the catalog see these rows, and SQL and the files say the same."""
    uri = catalog.table(table).table_uri
    in_order = sorted(wanted, key=repr)
    assert rows_by_deltalake(uri, bucket) == in_order
    assert rows_by_duckdb(uri, bucket) == in_order
    report = catalog.validate(table, bucket.storage_options)
    assert (report.drifts, report.lag) == ((), 0)


def data_files(uri: str, bucket: S3) -> set[str]:
    """The Parquet files in a table's folder, live or not."""
    if uri.startswith("s3://"):
        key = uri.removeprefix(f"s3://{bucket.bucket}/")
        names = {name for name in bucket.list_keys() if name.startswith(key)}
    else:
        names = {str(path) for path in Path(uri.removeprefix("file://")).rglob("*.parquet")}
    return {name for name in names if name.endswith(".parquet") and "/_" not in name}


def test_the_token_is_in_no_command_line(driver: Peer) -> None:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    ours = [line for line in lines if b"deltalakedb-tests" in line]
    assert ours, "the driver's JVM was not found"
    assert driver.ask("answer = dls.bridge_of(spark).url").startswith("http")
    assert [line for line in ours if b"the-token-of-the-tests" in line] == []


def test_tables_are_defined_changed_and_looked_after(
    driver: Peer, catalog: dl.Catalog, bucket: S3, storage: str, located: Place
) -> None:
    table = f"{storage}.orders"
    driver.sql(
        f"create database if not exists {storage}",
        f"create table {table} (id long, day string, amount double) using delta partitioned by (day) "
        f"{located('orders')} comment 'what was sold'",
        f"insert into {table} select id, concat('2026-01-0', 1 + id % 3), cast(id as double) from range(0, 300, 1, 6)",
        f"alter table {table} add columns (note string)",
    )
    assert driver.sql(f"select count(*), sum(amount), count(note) from {table}") == [[300, 44850.0, 0]]
    driver.sql(
        f"merge into {table} t using (select id, 'late' note from range(290, 310, 1, 4)) s on t.id = s.id "
        "when matched then update set note = s.note, amount = 0 "
        "when not matched then insert (id, day, amount, note) values (s.id, '2026-01-04', 1, s.note)",
        f"update {table} set amount = amount + 1 where day = '2026-01-01'",
        f"delete from {table} where id < 100",
    )
    wanted = driver.sql(f"select * from {table}")
    assert len(wanted) == 210
    assert driver.sql(f"select count(*) from {table} version as of 1") == [[300]]

    before = data_files(catalog.table(table).table_uri, bucket)
    driver.sql(f"optimize {table} zorder by (id)")
    live = catalog.table(table).file_uris()
    assert len(live) == 4
    assert driver.sql(f"select * from {table} order by id") == sorted(wanted)
    driver.sql("set spark.databricks.delta.retentionDurationCheck.enabled = false", f"vacuum {table} retain 0 hours")
    after = data_files(catalog.table(table).table_uri, bucket)
    assert len(after) == 4
    assert not after & before
    history = driver.ask(f"answer = [row.operation for row in spark.sql('describe history {table}').collect()]")
    assert history[:3] == ["VACUUM END", "VACUUM START", "OPTIMIZE"]
    check_mirror(catalog, bucket, table, [tuple(row) for row in wanted])


THREE = """
with dls.begin(spark, message="load") as tx:
    tx.sql("create table {{{a}}} (id long, name string) using delta")
    tx.sql("insert into {{{a}}} select id, concat('n', id) from range(0, 50, 1, 4)")
    spark.range(0, 20, 1, 4).selectExpr("id", "id % 2 kind").write.format("delta").mode("append").save(tx.path({b!r}))
    tx.sql("merge into {{{c}}} t using {{{a}}} s on t.id = s.id when matched then update set total = t.total + 1 "
           "when not matched then insert (id, total) values (s.id, 1)")
    {end}
answer = [tx.txn_id, tx.result]
"""


def test_three_tables_become_visible_in_one_transaction_or_not_at_all(
    driver: Peer, catalog: dl.Catalog, bucket: S3, storage: str, located: Place
) -> None:
    a, b, c = (f"{storage}_tx.{name}" for name in ("a", "b", "c"))
    driver.sql(
        f"create table {c} (id long, total long) using delta {located('c')}",
        f"insert into {c} select id, 10 from range(0, 10, 1, 2)",
    )
    files = data_files(catalog.table(c).table_uri, bucket)
    with pytest.raises(PeerError, match="on second thoughts"):
        driver.ask(THREE.format(a=a, b=b, c=c, end="raise ValueError('on second thoughts')"))
    assert set(catalog.tables()) & {a, b, c} == {c}
    assert catalog.table(c).version() == 1
    assert data_files(catalog.table(c).table_uri, bucket) == files
    txn_id, result = driver.ask(THREE.format(a=a, b=b, c=c, end="pass"))
    assert result == {a: 1, b: 0, c: 2}
    assert all(catalog.history(name)[0]["txnId"] == txn_id for name in (a, b, c))
    check_mirror(catalog, bucket, a, [(number, f"n{number}") for number in range(50)])
    check_mirror(catalog, bucket, b, [(number, number % 2) for number in range(20)])
    check_mirror(catalog, bucket, c, [(number, 11 if number < 10 else 1) for number in range(50)])


def test_tables_are_written_and_read_without_the_bridge(
    driver: Peer, served: ServedCatalog, catalog: dl.Catalog, bucket: S3, storage: str, disk: Path
) -> None:
    table = f"{storage}.sold"
    location = str(disk / "sold") if storage == "disk" else None
    answer = driver.ask(
        "import deltalakedb as dl\n"
        f"with dl.connect({served.uri!r}, warehouse={served.warehouse!r}) as catalog:\n"
        "    rows = spark.range(0, 400, 1, 4).selectExpr('id', 'id % 4 kind')\n"
        f"    first = dls.write_table(rows, {table!r}, partition_by='kind', location={location!r}, catalog=catalog)\n"
        f"    few = dls.read_table(spark, {table!r}, where='kind = 1 and id < 20', columns=['id'], catalog=catalog)\n"
        f"    every = dls.read_table(spark, {table!r}, catalog=catalog)\n"
        "    answer = [first, sorted(row.id for row in few.collect()), every.count()]"
    )
    assert answer == [0, [1, 5, 9, 13, 17], 400]
    check_mirror(catalog, bucket, table, [(number, number % 4) for number in range(400)])


STREAM = """
def counted(batch, batch_id, tx):
    sums = batch.groupBy("kind").count().toDF("kind", "rows")
    tx.sql("merge into {{{totals}}} t using {{sums}} s on t.kind = s.kind "
           "when matched then update set rows = t.rows + s.rows when not matched then insert *", sums=sums)

source = spark.readStream.format("delta").option("maxFilesPerTrigger", 2).table({source!r})
sink = dls.foreach_batch({{{copy!r}: lambda batch, _: batch, {totals!r}: counted}})
query = (source.writeStream.foreachBatch(sink).option("checkpointLocation", {checkpoint!r})
         .trigger(availableNow=True).start())
query.awaitTermination()
answer = [sum(1 for one in query.recentProgress if one.numInputRows), query.id]
"""


def test_a_stream_writes_two_tables_a_batch(
    driver: Peer, catalog: dl.Catalog, bucket: S3, storage: str, located: Place, tmp_path: Path
) -> None:
    source, copy, totals = (f"{storage}_stream.{name}" for name in ("source", "copy", "totals"))
    driver.sql(
        f"create table {source} (id long, kind long) using delta {located('source')}",
        f"insert into {source} select id, id % 3 from range(0, 90, 1, 4)",
        f"insert into {source} select id, id % 3 from range(90, 150, 1, 4)",
        f"create table {totals} (kind long, rows long) using delta {located('totals')}",
    )
    checkpoint = f"s3a://{bucket.bucket}/checkpoint" if storage == "s3" else str(tmp_path / "checkpoint")
    code = STREAM.format(source=source, copy=copy, totals=totals, checkpoint=checkpoint)
    batches, app_id = driver.ask(code)
    assert batches >= 4
    assert driver.ask(code)[0] == 0, "what was written is written again"
    check_mirror(catalog, bucket, copy, [(number, number % 3) for number in range(150)])
    check_mirror(catalog, bucket, totals, [(kind, 50) for kind in range(3)])
    assert catalog.table(copy).transaction_version(app_id) == batches - 1


def test_every_table_in_sql_is_what_its_files_say(served: ServedCatalog, catalog: dl.Catalog) -> None:
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        assert [result.error for result in reconciler.once() if result.error] == []
    code, said = served.dl("validate", "--all")
    assert code == 0, said
    assert len(re.findall(r"^\S+\.\S+", said, re.MULTILINE)) >= len(catalog.tables()), said
