"""Real tables written by unmodified delta-spark, one function a table; its docstring says what is special about it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

Factory = Callable[[SparkSession, Path], None]
TABLES: dict[str, Factory] = {}


def golden(factory: Factory) -> Factory:
    TABLES[factory.__name__] = factory
    return factory


def run(spark: SparkSession, path: Path, *statements: str) -> None:
    """Run SQL in which `{t}` stands for the table."""
    for statement in statements:
        spark.sql(statement.replace("{t}", f"delta.`{path}`")).collect()


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Session settings under `spark.databricks.delta`, `__` standing for a dot, put back afterwards."""
    names = {f"spark.databricks.delta.{key.replace('__', '.')}": value for key, value in values.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def properties(**values: str) -> str:
    pairs = ", ".join(f"'delta.{key.replace('__', '.')}' = '{value}'" for key, value in values.items())
    return f"tblproperties ({pairs})"


@golden
def partitioned(spark: SparkSession, path: Path) -> None:
    """Partitions by odd strings, dates and timestamps, null among them; classic checkpoints every third commit."""
    run(
        spark,
        path,
        "create table {t} (id bigint, city string, day date, at timestamp) using delta partitioned by (city, day, at) "
        + properties(checkpointInterval="3"),
        "insert into {t} values (1, 'Zürich', date'2026-01-01', timestamp'2026-01-01 10:00:00.123456'), "
        "(2, 'a b/c=d%', date'2026-01-02', null), (3, null, null, timestamp'1969-12-31 23:59:59')",
        "insert into {t} values (4, '', date'0001-01-01', timestamp'2026-01-01 00:00:00')",
        "delete from {t} where city = 'Zürich'",
        "update {t} set id = id + 10 where day is null",
        "insert overwrite {t} select * from {t} where id <> 4",
    )


@golden
def deletion_vectors(spark: SparkSession, path: Path) -> None:
    """Deletion vectors made, replaced, shared by several files, and purged."""
    spark.range(0, 2000, numPartitions=4).selectExpr("id", "cast(id % 10 as int) k").write.format("delta").option(
        "delta.enableDeletionVectors", "true"
    ).option("delta.checkpointInterval", "4").save(str(path))
    run(
        spark,
        path,
        "delete from {t} where id % 100 = 7",
        "delete from {t} where id % 100 = 8",
        "update {t} set k = -1 where id < 3",
        "merge into {t} t using (select id, 5 k from range(1990, 2010)) s on t.id = s.id "
        "when matched and s.id % 2 = 0 then delete when matched then update set * when not matched then insert *",
        "reorg table {t} apply (purge)",
        "delete from {t} where id = 500",
    )


@golden
def column_mapping(spark: SparkSession, path: Path) -> None:
    """Column mapping switched on later, then columns renamed, dropped and added, nested ones too."""
    run(
        spark,
        path,
        "create table {t} (id bigint, `old name` string, gone int, s struct<a: int, b: string>) using delta "
        "partitioned by (`old name`) " + properties(columnMapping__mode="name", checkpointInterval="5"),
        "insert into {t} values (1, 'x', 1, struct(1, 'b')), (2, 'y', 2, null)",
        "alter table {t} rename column `old name` to `new, name`",
        "alter table {t} drop column gone",
        "alter table {t} rename column s.a to z",
        "alter table {t} add columns (gone string after id, s.c double)",
        "insert into {t} (id, gone, `new, name`, s) values (3, 'back', 'x', struct(1, 'b', 2.5D))",
        "update {t} set gone = 'all'",
    )


@golden
def column_mapping_by_id(spark: SparkSession, path: Path) -> None:
    """Column mapping by field id."""
    run(
        spark,
        path,
        "create table {t} (id bigint, v double) using delta " + properties(columnMapping__mode="id"),
        "insert into {t} values (1, 1.5), (2, null)",
        "alter table {t} rename column v to w",
        "insert into {t} values (3, 'NaN'), (4, 'Infinity')",
    )


@golden
def mapping_turned_on(spark: SparkSession, path: Path) -> None:
    """A plain table upgraded to column mapping: its old files keep the old names as physical names."""
    run(
        spark,
        path,
        "create table {t} (id bigint, v string) using delta",
        "insert into {t} values (1, 'a')",
        "alter table {t} set " + properties(columnMapping__mode="name", minReaderVersion="2", minWriterVersion="5"),
        "alter table {t} rename column v to w",
        "insert into {t} values (2, 'b')",
    )


@golden
def change_feed(spark: SparkSession, path: Path) -> None:
    """A change data feed with `cdc` actions from update, delete and merge."""
    run(
        spark,
        path,
        "create table {t} (id bigint, v string, p int) using delta partitioned by (p) "
        + properties(enableChangeDataFeed="true", enableDeletionVectors="false", checkpointInterval="3"),
        "insert into {t} values (1, 'a', 0), (2, 'b', 1), (3, 'c', 0)",
        "update {t} set v = 'z' where id = 1",
        "delete from {t} where id = 2",
        "merge into {t} t using (select id, 'm' v, 1 p from range(3, 6)) s on t.id = s.id "
        "when matched then update set * when not matched then insert *",
    )


@golden
def v2_checkpoints_json(spark: SparkSession, path: Path) -> None:
    """V2 checkpoints whose top level is JSON, with several sidecars each."""
    with settings(spark, checkpointV2__topLevelFileFormat="json", checkpoint__partSize="2"):
        _v2_table(spark, path)


@golden
def v2_checkpoints_parquet(spark: SparkSession, path: Path) -> None:
    """V2 checkpoints whose top level is Parquet, with several sidecars each."""
    with settings(spark, checkpointV2__topLevelFileFormat="parquet", checkpoint__partSize="2"):
        _v2_table(spark, path)


def _v2_table(spark: SparkSession, path: Path) -> None:
    run(
        spark,
        path,
        "create table {t} (id bigint, p int) using delta partitioned by (p) "
        + properties(checkpointPolicy="v2", checkpointInterval="3", enableDeletionVectors="true"),
        "insert into {t} select id, id % 4 from range(100)",
        "insert into {t} select id, id % 4 from range(100, 200)",
        "delete from {t} where id in (3, 150)",
        "delete from {t} where p = 2",
        "insert into {t} select id, id % 4 from range(200, 300)",
        "insert into {t} select id, id % 4 from range(300, 400)",
        "insert into {t} values (1000, 9)",
    )


@golden
def multi_part_checkpoints(spark: SparkSession, path: Path) -> None:
    """Classic checkpoints split into many parts."""
    with settings(spark, checkpoint__partSize="3"):
        run(
            spark,
            path,
            "create table {t} (id bigint, p int) using delta partitioned by (p) "
            + properties(checkpointInterval="3", enableDeletionVectors="false"),
            "insert into {t} select id, id % 5 from range(50)",
            "insert into {t} select id, id % 5 from range(50)",
            "delete from {t} where p = 1",
            "insert into {t} select id, id % 5 from range(50)",
            "delete from {t} where id = 12",
            "insert into {t} select id, id % 5 from range(50)",
            "insert into {t} values (-1, null)",
        )


@golden
def stats_as_struct(spark: SparkSession, path: Path) -> None:
    """Checkpoints with statistics and partition values as structs only."""
    run(
        spark,
        path,
        "create table {t} (id bigint, d decimal(20, 3), s string, at timestamp, day date, n timestamp_ntz, f float, "
        "nest struct<x: int, y: struct<z: string>>, p date) using delta partitioned by (p) "
        + properties(
            checkpointInterval="2", checkpoint__writeStatsAsStruct="true", checkpoint__writeStatsAsJson="false"
        ),
        "insert into {t} values (1, 12345678901234567.891, 'é', timestamp'2026-01-01 10:00:00.123456', "
        "date'2026-01-01', timestamp_ntz'2026-01-01 00:00:00', 1.5, struct(1, struct('z')), date'2026-02-01')",
        "insert into {t} values (2, null, null, null, null, null, 'NaN', null, null)",
        "insert into {t} values (3, -0.001, repeat('long', 20), timestamp'1900-01-01', date'0001-01-01', "
        "timestamp_ntz'9999-12-31 23:59:59.999999', '-Infinity', struct(null, null), date'2026-02-02')",
        "delete from {t} where id = 2",
    )


@golden
def in_commit_timestamps(spark: SparkSession, path: Path) -> None:
    """In-commit timestamps from the first commit on."""
    run(
        spark,
        path,
        "create table {t} (id bigint) using delta "
        + properties(enableInCommitTimestamps="true", checkpointInterval="2"),
        "insert into {t} values (1)",
        "insert into {t} values (2)",
        "delete from {t} where id = 1",
    )


@golden
def in_commit_timestamps_later(spark: SparkSession, path: Path) -> None:
    """In-commit timestamps enabled at version 2: file times before it, their own after it."""
    run(
        spark,
        path,
        "create table {t} (id bigint) using delta",
        "insert into {t} values (1)",
        "alter table {t} set " + properties(enableInCommitTimestamps="true"),
        "insert into {t} values (2)",
        "insert into {t} values (3)",
    )


@golden
def row_tracking(spark: SparkSession, path: Path) -> None:
    """Row ids and row commit versions, with the domain that counts them; kept through an OPTIMIZE."""
    run(
        spark,
        path,
        "create table {t} (id bigint, v string) using delta "
        + properties(enableRowTracking="true", enableDeletionVectors="true", checkpointInterval="3"),
        "insert into {t} select id, 'a' from range(10)",
        "insert into {t} select id, 'b' from range(10, 20)",
        "delete from {t} where id = 3",
        "update {t} set v = 'c' where id > 15",
        "optimize {t}",
    )


@golden
def type_widening(spark: SparkSession, path: Path) -> None:
    """Columns whose type grew: the schema carries the history, old statistics are in the old type."""
    run(
        spark,
        path,
        "create table {t} (a byte, b int, c float, d decimal(5, 2), e date, s struct<x: short>) using delta "
        + properties(enableTypeWidening="true", feature__timestampNtz="supported", checkpointInterval="4"),
        "insert into {t} values (127, 2147483647, 1.5, 999.99, date'2026-01-01', struct(7))",
        "alter table {t} alter column a type short",
        "alter table {t} alter column a type int",
        "alter table {t} alter column b type bigint",
        "alter table {t} alter column c type double",
        "alter table {t} alter column d type decimal(10, 4)",
        "alter table {t} alter column s.x type int",
        "alter table {t} alter column e type timestamp_ntz",
        "insert into {t} values (100000, 9000000000, 1e300, 123456.7891, "
        "timestamp_ntz'2026-01-01 10:00:00', struct(70000))",
    )


@golden
def app_transactions(spark: SparkSession, path: Path) -> None:
    """`txn` actions of two applications, carried by checkpoints, and a repeated one that changed nothing."""
    for app, version in (("app one", 1), ("app/two", 7), ("app one", 2), ("app one", 2), ("app/two", 8)):
        (
            spark.range(version, version + 3)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", app)
            .option("txnVersion", version)
            .option("delta.checkpointInterval", "2")
            .option("userMetadata", f'{{"job": "{app}"}}')
            .save(str(path))
        )


@golden
def clustered(spark: SparkSession, path: Path) -> None:
    """Liquid clustering: clustering columns in domain metadata, changed, then removed."""
    run(
        spark,
        path,
        "create table {t} (a bigint, b string) using delta cluster by (a, b) " + properties(checkpointInterval="3"),
        "insert into {t} select id, cast(id as string) from range(20)",
        "optimize {t} full",
        "alter table {t} cluster by (b)",
        "insert into {t} values (-1, null)",
        "alter table {t} cluster by none",
    )


@golden
def shallow_clone(spark: SparkSession, path: Path) -> None:
    """A shallow clone: absolute paths, deletion vectors of storage type `p`, then files of its own."""
    source = path.parent / "_shallow_clone_source"
    run(
        spark,
        source,
        "create table {t} (id bigint, p string) using delta partitioned by (p) "
        + properties(enableDeletionVectors="true"),
        "insert into {t} select id, concat('p ', id % 2) from range(20)",
        "delete from {t} where id = 4",
    )
    run(
        spark,
        path,
        f"create table {{t}} shallow clone delta.`{source}`",
        "insert into {t} values (100, 'own')",
        "delete from {t} where id in (6, 7)",
        "delete from {t} where p = 'p 0'",
    )


@golden
def generated_columns(spark: SparkSession, path: Path) -> None:
    """Generated, identity and default columns, and a check constraint."""
    run(
        spark,
        path,
        "create table {t} (k bigint generated always as identity (start with 10 increment by 5), at timestamp, "
        "day date generated always as (cast(at as date)), v string default 'none') using delta partitioned by (day) "
        + properties(feature__allowColumnDefaults="supported", checkpointInterval="3"),
        "insert into {t} (at) values (timestamp'2026-01-01 10:00:00'), (timestamp'2026-01-02 10:00:00')",
        "alter table {t} add constraint v_set check (v is not null)",
        "insert into {t} (at, v) values (timestamp'2026-01-03 10:00:00', 'set')",
        "alter table {t} alter column v set default 'other'",
    )


@golden
def variant(spark: SparkSession, path: Path) -> None:
    """A variant column beside plain ones."""
    run(
        spark,
        path,
        "create table {t} (id bigint, v variant) using delta",
        """insert into {t} select 1, parse_json('{"a": [1, 2.5, null]}')""",
        "insert into {t} values (2, null)",
    )


@golden
def maintained(spark: SparkSession, path: Path) -> None:
    """Restore, vacuum with its own commits, z-order, analyze, replace: operations that write metadata."""
    run(
        spark,
        path,
        "create table {t} (id bigint, v string comment 'text') using delta comment 'a table' "
        + properties(checkpointInterval="4"),
        "insert into {t} select id, 'a' from range(10)",
        "insert into {t} select id, 'b' from range(10)",
        "optimize {t} zorder by (id)",
        "restore table {t} to version as of 1",
    )
    with settings(spark, retentionDurationCheck__enabled="false", vacuum__logging__enabled="true"):
        run(spark, path, "vacuum {t} retain 0 hours")
    run(
        spark,
        path,
        "alter table {t} set tblproperties ('custom' = 'ä')",
        "alter table {t} unset tblproperties ('custom')",
        "create or replace table {t} using delta as select 1 as only",
    )


@golden
def feature_dropped(spark: SparkSession, path: Path) -> None:
    """Deletion vectors taken off again: a protocol that shrinks, protected checkpoints."""
    run(
        spark,
        path,
        "create table {t} (id bigint) using delta " + properties(enableDeletionVectors="true"),
        "insert into {t} select id from range(100)",
        "delete from {t} where id = 3",
        "alter table {t} drop feature deletionVectors",
        "insert into {t} values (1000)",
    )


@golden
def streamed(spark: SparkSession, path: Path) -> None:
    """Micro-batches of a structured stream: `txn` actions with the query's id."""
    source, checkpoint = path.parent / "_streamed_source", path.parent / "_streamed_checkpoint"
    for start in (0, 5):
        spark.range(start, start + 5).write.format("delta").mode("append").save(str(source))
        query = (
            spark.readStream.format("delta")
            .load(str(source))
            .writeStream.format("delta")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(path))
        )
        query.awaitTermination()
