"""The kinds of statements that a Spark pipeline runs: each as what comes before, the statements, and the rows after."""

from datetime import UTC, datetime

from tests.spark.stage import Kind, Stage, create

LISTED = (
    "create", "CTAS", "append", "overwrite", "replaceWhere", "dynamic partition overwrite", "update",
    "delete with DVs", "delete without DVs", "merge with all clauses", "optimize", "z-order", "clustering", "vacuum",
    "restore", "alter: add columns", "alter: rename columns", "alter: drop columns", "alter: properties",
    "constraints", "generated columns", "identity columns", "column mapping", "row tracking", "in-commit timestamps",
    "V2 checkpoints", "drop feature", "deep clone", "convert", "CDF", "streaming sink", "streaming source",
)  # fmt: skip
"""What a pipeline must be able to do; a test fails when one of these has no kind."""


PARTITIONED = create(more="partitioned by (city)")
LATER = datetime(2026, 2, 3, tzinfo=UTC)
FILL = "insert into {t} values (1, 'a', 1.0), (2, 'b', 2.0), (3, 'a', null)"
MORE = "insert into {t} values (4, 'b', 4.0)"
FILLED = [(1, "a", 1.0), (2, "b", 2.0), (3, "a", None)]
ONE_FILE = "insert into {t} select /*+ coalesce(1) */ id, 'a', cast(id as double) from range(6)"


def _append(stage: Stage) -> None:
    stage.save(stage.frame("(5L, 'ä / =%', 5.0D)"), "append")
    stage.save(stage.frame("(6L, 'c', 6.0D, true)", "id, city, amount, new"), "append", mergeSchema="true")


def _overwrite(stage: Stage) -> None:
    stage.save(stage.frame("(8L, 'x')", "id, town"), "overwrite", overwriteSchema="true")


def _replace_where(stage: Stage) -> None:
    stage.save(stage.frame("(8L, 'b', 8.0D)"), "overwrite", replaceWhere="city = 'b'")
    outside = stage.frame("(9L, 'x', 9.0D)")
    stage.refused(lambda: stage.save(outside, "overwrite", replaceWhere="city = 'b'"), "DELTA_REPLACE_WHERE_MISMATCH")


def _dynamic(stage: Stage) -> None:
    stage.save(stage.frame("(8L, 'b', 8.0D), (9L, 'c', 9.0D)"), "overwrite", partitionOverwriteMode="dynamic")
    with stage.conf("spark.sql.sources.partitionOverwriteMode", "dynamic"):
        stage.sql("insert overwrite {t} values (10, 'c', 10.0)")


def _vacuum(stage: Stage) -> None:
    with stage.conf("spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        stage.sql("vacuum {t} retain 0 hours")
    stage.refused("select * from {t} version as of 1", "FAILED_READ_FILE")


def _not_null(stage: Stage) -> None:
    stage.refused("insert into {t} values (null, 'a', 1.0)", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED")
    stage.refused("insert into {t} values (9, 'a', -1.0)", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "positive")


def _generated(stage: Stage) -> None:
    stage.sql("insert into {t} (id, at) values (1, timestamp'2026-01-02 03:04:05')")
    stage.refused("insert into {t} values (2, timestamp'2026-01-02 03:04:05', date'2000-01-01')", "Generated Column")
    assert stage.sql("select cast(day as string) from {t} where day = '2026-01-02'") == [("2026-01-02",)]


def _row_ids(stage: Stage) -> None:
    rows = sorted(stage.sql("select id, _metadata.row_id, _metadata.row_commit_version from {t}"))
    assert [number for _, number, _ in rows[:3]] == [0, 1, 2], "an update keeps a row's id"
    assert rows[3][1] > 2, "a new row has a new one"
    assert [version for *_, version in rows] == [1, 2, 1, 3], rows


def _change_feed(stage: Stage) -> None:
    options = {"readChangeFeed": "true", "startingVersion": "2"}
    frame = stage.spark.read.format("delta").options(**options).load(stage.path)
    found = [tuple(row) for row in frame.select("id", "amount", "_change_type", "_commit_version").collect()]
    wanted = [
        (1, 1.0, "delete", 3), (2, 2.0, "update_preimage", 2), (2, 20.0, "update_postimage", 2), (3, None, "delete", 4),
        (4, 4.0, "insert", 4),
    ]  # fmt: skip
    assert sorted(found, key=repr) == sorted(wanted, key=repr), found


def _columns_by_id(stage: Stage) -> None:
    rows = stage.sql("select `new, name` from {t} where `new, name` = 'a'")
    assert rows == [("a",), ("a",)]


def _in_order(stage: Stage) -> None:
    times = [row[1] for row in sorted(stage.sql("describe history {t}"))]
    assert times == sorted(set(times)), times
    moment = times[1].strftime("%Y-%m-%d %H:%M:%S.%f")
    assert stage.sql(f"select count(*) from {{t}} timestamp as of '{moment}'") == [(3,)]


def _parquet_there(stage: Stage) -> None:
    frame = stage.frame("(1L, 1.0D, 'a'), (2L, 2.0D, 'b')", "id, amount, city")
    frame.write.mode("error").partitionBy("city").parquet(stage.path)


def _clone(stage: Stage) -> None:
    """Delta's open source has no deep clone: Spark's parser says so, and nothing is made."""
    stage.refused("create table delta.`{scratch}/copy` deep clone {t}", "PARSE_SYNTAX_ERROR")
    assert not (stage.scratch / "copy").exists()
    stage.sql("create table delta.`{scratch}/copy` using delta as select * from {t}")
    assert stage.sql("select count(*) from delta.`{scratch}/copy`") == [(3,)]


def _folder_of_files(stage: Stage) -> None:
    for number in range(3):
        stage.frame(f"({number}L, 's', 1.5D)").write.mode("append").parquet(f"{stage.scratch}/in")


def _sink(stage: Stage) -> None:
    """Twice from one checkpoint: the second run finds nothing new."""
    for _ in range(2):
        source = stage.spark.readStream.schema("id bigint, city string, amount double")
        rows = source.option("maxFilesPerTrigger", "2").parquet(f"{stage.scratch}/in")
        stream = rows.writeStream.format("delta").option("checkpointLocation", f"{stage.scratch}/sink")
        query = stream.trigger(availableNow=True).start(stage.path)
        assert query.awaitTermination(120)


def _source(stage: Stage) -> None:
    """From the second commit on, a file at a time; then what came later."""
    for wanted in (2, 3):
        reader = stage.spark.readStream.format("delta").options(startingVersion="2", maxFilesPerTrigger="1")
        stream = (
            reader.load(stage.path).writeStream.format("parquet").option("checkpointLocation", f"{stage.scratch}/c")
        )
        query = stream.trigger(availableNow=True).start(f"{stage.scratch}/out")
        assert query.awaitTermination(120)
        assert stage.sql("select count(*) from parquet.`{scratch}/out`") == [(wanted,)]
        if wanted == 2:
            stage.sql("insert into {t} values (6, 'c', 6.0)")


MERGE = """
merge into {t} t using (select * from values (1L, 10.0D), (2L, 20.0D), (9L, 90.0D) as v(id, amount)) s on t.id = s.id
when matched and t.id = 1 then delete
when matched then update set amount = s.amount
when not matched and s.id > 5 then insert (id, city, amount) values (s.id, 'new', s.amount)
when not matched by source and t.id = 3 then update set amount = 30.0
when not matched by source then delete
"""

MERGE_CHANGES = """
merge into {t} t using (select * from values (3L, null), (4L, 4.0D) as v(id, amount)) s on t.id = s.id
when matched then delete when not matched then insert (id, city, amount) values (s.id, 'd', s.amount)
"""

KINDS = (
    Kind(
        "create", "create", (),
        (
            create("appendOnly=false", more="partitioned by (city) comment 'a table'"),
            "create table if not exists {t} using delta",
        ),
        [], leaves=('"operation":"CREATE TABLE"', "a table"),
    ),
    Kind(
        "replace", "create", (PARTITIONED, FILL),
        ("create or replace table {t} using delta as select 1 as other", "insert into {t} values (2)"),
        [(1,), (2,)], leaves=('"operation":"CREATE OR REPLACE TABLE AS SELECT"',),
    ),
    Kind(
        "ctas", "CTAS", (),
        ("create table {t} using delta partitioned by (city) as select 1L as id, 'a' as city, 1.5D as amount",),
        [(1, "a", 1.5)], leaves=('"operation":"CREATE TABLE AS SELECT"',),
    ),
    Kind(
        "append", "append", (PARTITIONED, FILL), (MORE, _append),
        [
            (1, "a", 1.0, None), (2, "b", 2.0, None), (3, "a", None, None), (4, "b", 4.0, None),
            (5, "ä / =%", 5.0, None), (6, "c", 6.0, True),
        ],
        leaves=('"isBlindAppend":true',),
    ),
    Kind(
        "overwrite", "overwrite", (create(), FILL), ("insert overwrite {t} values (7, 'x', 7.0)", _overwrite),
        [(8, "x")], leaves=('"mode":"Overwrite"',),
    ),
    Kind(
        "replace_where", "replaceWhere", (PARTITIONED, FILL),
        ("insert into {t} replace where city = 'a' values (7, 'a', 7.0)", _replace_where),
        [(7, "a", 7.0), (8, "b", 8.0)],
    ),
    Kind(
        "dynamic_overwrite", "dynamic partition overwrite", (PARTITIONED, FILL), (_dynamic,),
        [(1, "a", 1.0), (3, "a", None), (8, "b", 8.0), (10, "c", 10.0)],
    ),
    Kind(
        "update", "update", (PARTITIONED, FILL), ("update {t} set amount = id * 10, city = 'c' where city = 'a'",),
        [(1, "c", 10.0), (2, "b", 2.0), (3, "c", 30.0)], leaves=('"operation":"UPDATE"',),
    ),
    Kind(
        "delete_with_vectors", "delete with DVs", (create("enableDeletionVectors=true"), ONE_FILE),
        ("delete from {t} where id = 1", "delete from {t} where id = 3", "update {t} set amount = 50.0 where id = 5"),
        [(0, "a", 0.0), (2, "a", 2.0), (4, "a", 4.0), (5, "a", 50.0)], leaves=('"deletionVector":{"storageType"',),
    ),
    Kind(
        "delete", "delete without DVs", (create("enableDeletionVectors=false"), ONE_FILE, MORE),
        ("delete from {t} where id = 1", "delete from {t} where city = 'b'"),
        [(0, "a", 0.0), (2, "a", 2.0), (3, "a", 3.0), (4, "a", 4.0), (5, "a", 5.0)],
        leaves=('"operation":"DELETE"',), lacks=('"deletionVector":{',),
    ),
    Kind(
        "merge", "merge with all clauses", (create(), FILL, MORE), (MERGE,),
        [(2, "b", 20.0), (3, "a", 30.0), (9, "new", 90.0)], leaves=('"operation":"MERGE"', "notMatchedBySource"),
    ),
    Kind(
        "optimize", "optimize", (create(), FILL, MORE), ("optimize {t}",), [*FILLED, (4, "b", 4.0)],
        leaves=('"operation":"OPTIMIZE"', '"dataChange":false'),
    ),
    Kind(
        "zorder", "z-order", (PARTITIONED, FILL, MORE), ("optimize {t} where city = 'b' zorder by (id, amount)",),
        [*FILLED, (4, "b", 4.0)], leaves=('"operation":"OPTIMIZE"', '\\"id\\"'),
    ),
    Kind(
        "clustering", "clustering", (create(more="cluster by (id)"), FILL, MORE),
        ("optimize {t}", "alter table {t} cluster by (city)", MORE, "optimize {t} full"),
        [*FILLED, (4, "b", 4.0), (4, "b", 4.0)], leaves=('"delta.clustering"', "clusteringProvider"),
    ),
    Kind(
        "vacuum", "vacuum", (create(), FILL, "insert overwrite {t} values (7, 'x', 7.0)"), (_vacuum, MORE),
        [(7, "x", 7.0), (4, "b", 4.0)], read_from=2,
    ),
    Kind(
        "restore", "restore", (create(), FILL, "delete from {t}", "alter table {t} add columns (note string)"),
        ("restore table {t} to version as of 1", MORE), [*FILLED, (4, "b", 4.0)], leaves=('"operation":"RESTORE"',),
    ),
    Kind(
        "add_columns", "alter: add columns", (create(), FILL),
        ("alter table {t} add columns (first int first, at struct<x: int> after id)", "insert into {t} "
         "select 1, 5L, named_struct('x', 2), 'e', 5.0D"),
        [(None, 1, None, "a", 1.0), (None, 2, None, "b", 2.0), (None, 3, None, "a", None), (1, 5, {"x": 2}, "e", 5.0)],
        leaves=('"operation":"ADD COLUMNS"',),
    ),
    Kind(
        "rename_columns", "alter: rename columns", (create("columnMapping.mode=name"), FILL),
        ("alter table {t} rename column city to `town, city`", "insert into {t} values (4, 'b', 4.0)"),
        [*FILLED, (4, "b", 4.0)], leaves=('"operation":"RENAME COLUMN"',),
    ),
    Kind(
        "drop_columns", "alter: drop columns", (create("columnMapping.mode=name"), FILL),
        ("alter table {t} drop columns (city)", "insert into {t} values (4, 4.0)"),
        [(1, 1.0), (2, 2.0), (3, None), (4, 4.0)], leaves=('"operation":"DROP COLUMNS"',),
    ),
    Kind(
        "properties", "alter: properties", (create(), FILL),
        (
            "alter table {t} set tblproperties ('team' = 'ä', 'delta.logRetentionDuration' = 'interval 9 days')",
            "alter table {t} unset tblproperties ('team')", "alter table {t} alter column id comment 'the key'",
            "comment on table {t} is 'a comment'",
        ),
        FILLED, leaves=('"operation":"SET TBLPROPERTIES"', '"operation":"UNSET TBLPROPERTIES"', "the key"),
    ),
    Kind(
        "constraints", "constraints", (create(columns="id bigint not null, city string, amount double"), FILL),
        ("alter table {t} add constraint positive check (amount is null or amount > 0)", _not_null, MORE,
         "alter table {t} drop constraint positive", "insert into {t} values (5, 'n', -1.0)"),
        [*FILLED, (4, "b", 4.0), (5, "n", -1.0)], leaves=("delta.constraints.positive",),
    ),
    Kind(
        "generated_columns", "generated columns",
        (create(columns="id bigint, at timestamp, day date generated always as (cast(at as date))",
                more="partitioned by (day)"),),
        (_generated, "update {t} set at = timestamp'2026-02-03 00:00:00'"), [(1, LATER, LATER.date())],
        leaves=("delta.generationExpression",),
    ),
    Kind(
        "identity_columns", "identity columns",
        (create(columns="id bigint generated always as identity (start with 10 increment by 5), city string"),),
        ("insert into {t} (city) values ('a')", "insert into {t} (city) values ('b')"), [(10, "a"), (15, "b")],
        leaves=("delta.identity.highWaterMark",),
    ),
    Kind(
        "column_mapping", "column mapping", (create(), FILL),
        (
            "alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
            "'delta.minWriterVersion' = '5')",
            "alter table {t} rename column city to `new, name`", MORE, "update {t} set amount = 0 where id = 1",
            _columns_by_id,
        ),
        [(1, "a", 0.0), (2, "b", 2.0), (3, "a", None), (4, "b", 4.0)], leaves=("delta.columnMapping.physicalName",),
    ),
    Kind(
        "row_tracking", "row tracking", (create("enableRowTracking=true"), FILL),
        ("update {t} set amount = 20 where id = 2", MORE, _row_ids),
        [(1, "a", 1.0), (2, "b", 20.0), (3, "a", None), (4, "b", 4.0)], leaves=('"baseRowId"', "delta.rowTracking"),
    ),
    Kind(
        "in_commit_timestamps", "in-commit timestamps", (create("enableInCommitTimestamps=true"), FILL),
        (MORE, "update {t} set amount = 20 where id = 2", _in_order),
        [(1, "a", 1.0), (2, "b", 20.0), (3, "a", None), (4, "b", 4.0)], leaves=('"inCommitTimestamp"',),
    ),
    Kind(
        "v2_checkpoints", "V2 checkpoints", (create("checkpointPolicy=v2", "checkpointInterval=2"), FILL),
        (MORE, MORE, "delete from {t} where id = 1"), [(2, "b", 2.0), (3, "a", None), (4, "b", 4.0), (4, "b", 4.0)],
        leaves=("v2Checkpoint",),
    ),
    Kind(
        "drop_feature", "drop feature",
        (create("enableDeletionVectors=true"), ONE_FILE, "delete from {t} where id = 1"),
        ("alter table {t} drop feature deletionVectors", "insert into {t} values (7, 'b', 7.0)"),
        [(0, "a", 0.0), (2, "a", 2.0), (3, "a", 3.0), (4, "a", 4.0), (5, "a", 5.0), (7, "b", 7.0)],
        leaves=('"operation":"DROP FEATURE"', "checkpointProtection"),
    ),
    Kind("deep_clone", "deep clone", (create(), FILL), (_clone,), FILLED),
    Kind(
        "convert", "convert", (_parquet_there,),
        (
            "convert to delta parquet.`{path}` partitioned by (city string)",
            "insert into delta.`{path}` values (3, 3.0, 'c')",
        ),
        [(1, 1.0, "a"), (2, 2.0, "b"), (3, 3.0, "c")], leaves=('"operation":"CONVERT"',),
    ),
    Kind(
        "change_feed", "CDF", (create("enableChangeDataFeed=true"), FILL),
        ("update {t} set amount = 20 where id = 2", "delete from {t} where id = 1", MERGE_CHANGES, _change_feed),
        [(2, "b", 20.0), (4, "d", 4.0)], leaves=('{"cdc":{',),
    ),
    Kind(
        "streaming_sink", "streaming sink", (create(), _folder_of_files), (_sink,),
        [(0, "s", 1.5), (1, "s", 1.5), (2, "s", 1.5)], leaves=('"operation":"STREAMING UPDATE"', '{"txn":{'),
    ),
    Kind(
        "streaming_source", "streaming source", (create(), FILL, MORE, "insert into {t} values (5, 'c', 5.0)"),
        (_source,), [*FILLED, (4, "b", 4.0), (5, "c", 5.0), (6, "c", 6.0)],
    ),
)  # fmt: skip
