"""Real tables written by `deltalake`, one function a table; its docstring says what is special about it."""

import datetime as dt
import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.schema import Field, PrimitiveType

Factory = Callable[[Path], None]
TABLES: dict[str, Factory] = {}

UTC = dt.UTC


def golden(factory: Factory) -> Factory:
    TABLES[factory.__name__] = factory
    return factory


def rows(start: int, stop: int) -> pa.Table:
    """The same few columns everywhere: a key, a partition-sized string, a number with nulls, a timestamp."""
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "region": pa.array([("eu", "us", "asia")[i % 3] for i in ids]),
            "amount": pa.array([None if i % 5 == 0 else i / 4 for i in ids], pa.float64()),
            "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(minutes=i) for i in ids]),
        }
    )


@golden
def appended(path: Path) -> None:
    """Five appends, nothing else."""
    for start in range(0, 50, 10):
        write_deltalake(path, rows(start, start + 10), mode="append")


@golden
def partitioned(path: Path) -> None:
    """Partition values that need escaping in paths, null and empty ones, dates and numbers among the keys."""
    data = pa.table(
        {
            "id": pa.array(range(8), pa.int64()),
            "city": ["Zürich", "a b", "50% off", "x=y", "a/b", None, "日本", "c:d"],
            "day": [dt.date(2026, 1, 1 + i % 3) for i in range(8)],
            "n": pa.array([0, -1, 2, 3, None, 5, 6, 7], pa.int32()),
        }
    )
    write_deltalake(path, data, partition_by=["city", "day", "n"])
    write_deltalake(path, data, mode="append")
    DeltaTable(path).delete("city = 'a b'")


@golden
def overwritten(path: Path) -> None:
    """A table replaced twice, once only where a predicate holds."""
    write_deltalake(path, rows(0, 30), partition_by="region")
    write_deltalake(path, rows(30, 60), mode="overwrite")
    write_deltalake(
        path, rows(60, 63).filter(pa.array([True, False, False])), mode="overwrite", predicate="region = 'eu'"
    )


@golden
def rewritten(path: Path) -> None:
    """Update, delete, merge, compaction, z-order, restore: every writer that rewrites files."""
    for start in range(0, 30, 10):
        write_deltalake(path, rows(start, start + 10), mode="append")
    table = DeltaTable(path)
    table.update(updates={"amount": "amount + 1"}, predicate="id < 5")
    table.delete("id % 7 = 0")
    (
        table.merge(rows(25, 40), "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    table.optimize.compact()
    table.optimize.z_order(["id"])
    table.restore(1)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@golden
def checkpointed(path: Path) -> None:
    """Two classic checkpoints with commits before, between and after them."""
    for start in range(0, 70, 10):
        write_deltalake(path, rows(start, start + 10), mode="append", partition_by="region")
        if start in (20, 50):
            DeltaTable(path).create_checkpoint()
    DeltaTable(path).delete("id < 12")


@golden
def cleaned_up(path: Path) -> None:
    """The first commits are gone: the log begins at a checkpoint."""
    config = {"delta.logRetentionDuration": "interval 1 days"}
    quiet = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    for start in range(0, 60, 10):
        write_deltalake(
            path, rows(start, start + 10), mode="append", configuration=config, post_commithook_properties=quiet
        )
    old = time.time() - 5 * 86400
    for version in range(5):
        os.utime(path / "_delta_log" / f"{version:020}.json", (old + version, old + version))
    DeltaTable(path, version=3).create_checkpoint()
    os.utime(path / "_delta_log" / f"{3:020}.checkpoint.parquet", (old + 3, old + 3))
    DeltaTable(path).cleanup_metadata()


@golden
def change_feed(path: Path) -> None:
    """A change data feed: `cdc` actions beside the files."""
    write_deltalake(path, rows(0, 20), configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(path)
    table.update(updates={"amount": "0.0"}, predicate="id < 3")
    table.delete("id >= 18")
    (
        table.merge(rows(5, 25), "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


@golden
def constrained(path: Path) -> None:
    """Check constraints added and dropped, not-null columns, table name, description and properties."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
    DeltaTable.create(path, schema, name="orders", description="with “quotes” and \\ back\nslashes")
    write_deltalake(path, pa.table({"id": [1, 2], "amount": [1.0, None]}, schema=schema), mode="append")
    table = DeltaTable(path)
    table.alter.add_constraint({"id_positive": "id > 0"})
    table.alter.set_table_properties(
        {"delta.checkpointInterval": "7", "custom.owner": "ops"}, raise_if_not_exists=False
    )
    table.alter.set_table_name("renamed")
    table.alter.set_table_description("")
    table.alter.drop_constraint("id_positive")
    table.alter.drop_column_not_null("id")


@golden
def app_transactions(path: Path) -> None:
    """`txn` actions of two applications, one of them twice, and a checkpoint that must carry them."""
    for version, app in enumerate(["stream-a", "stream-b", "stream-a"]):
        properties = CommitProperties(
            app_transactions=[Transaction(app, version * 10, 1_767_225_600_000 + version)],
            custom_metadata={"userMetadata": f"batch {version}"},
        )
        write_deltalake(path, rows(version * 5, version * 5 + 5), mode="append", commit_properties=properties)
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, rows(90, 95), mode="append")


@golden
def every_type(path: Path) -> None:
    """Each primitive type at its edges, with nulls, so that statistics hold every spelling of a value."""
    naive = dt.datetime(2026, 2, 28, 23, 59, 59, 999_999)
    data = pa.table(
        {
            "i8": pa.array([-128, 127, None], pa.int8()),
            "i16": pa.array([-32768, 32767, None], pa.int16()),
            "i32": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
            "i64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
            "f32": pa.array([float("-inf"), 1.1, float("nan")], pa.float32()),
            "f64": pa.array([-0.0, 1e308, None], pa.float64()),
            "dec": pa.array([Decimal("-99999999.99"), Decimal("0.01"), None], pa.decimal128(10, 2)),
            "wide": pa.array([Decimal(10) ** 30, -(Decimal(10) ** 30), None], pa.decimal128(38, 6)),
            "flag": pa.array([True, False, None]),
            "text": pa.array(["", "z" * 100 + "é", None]),
            "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
            "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
            "ts": pa.array([naive.replace(tzinfo=UTC), dt.datetime(1969, 12, 31, tzinfo=UTC), None]),
            "ntz": pa.array([naive, dt.datetime(1600, 1, 1), None], pa.timestamp("us")),
        }
    )
    write_deltalake(path, data)
    write_deltalake(path, data.slice(2), mode="append")
    DeltaTable(path).create_checkpoint()


@golden
def nested(path: Path) -> None:
    """Structs in structs, lists, maps, and statistics on the leaves of the structs."""
    point = pa.struct([("x", pa.float64()), ("y", pa.struct([("deep", pa.int32())]))])
    data = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "where": pa.array([{"x": 1.5, "y": {"deep": 7}}, {"x": None, "y": None}], point),
            "tags": pa.array([["a", None], []], pa.list_(pa.string())),
            "attributes": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "points": pa.array([[{"x": 0.0, "y": None}], None], pa.list_(point)),
        }
    )
    write_deltalake(path, data)
    write_deltalake(path, data, mode="append")


@golden
def evolved(path: Path) -> None:
    """Columns added by a merge of schemas, by `add_columns`, then the schema overwritten."""
    write_deltalake(path, rows(0, 5))
    write_deltalake(
        path, pa.table({"id": pa.array([9], pa.int64()), "note": ["new"]}), mode="append", schema_mode="merge"
    )
    DeltaTable(path).alter.add_columns([Field("added", PrimitiveType("integer"), metadata={"comment": "später"})])
    write_deltalake(path, pa.table({"key": ["only"]}), mode="overwrite", schema_mode="overwrite")


@golden
def compacted_log(path: Path) -> None:
    """A log compaction file beside the commits it sums up."""
    for start in range(0, 60, 10):
        write_deltalake(path, rows(start, start + 10), mode="append")
    DeltaTable(path).delete("id < 5")
    DeltaTable(path).compact_logs(1, 4)


@golden
def stats_as_struct(path: Path) -> None:
    """A checkpoint whose statistics are a struct only, no JSON string."""
    config = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    for start in range(0, 30, 10):
        write_deltalake(path, rows(start, start + 10), mode="append", partition_by="region", configuration=config)
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, rows(30, 40), mode="append")


@golden
def column_mapped(path: Path) -> None:
    """Column mapping by name: physical names differ from what people read, partition values are keyed by them."""
    config = {"delta.columnMapping.mode": "name"}
    DeltaTable.create(path, rows(0, 1).schema, partition_by=["region"], configuration=config)
    for start in range(0, 20, 10):
        write_deltalake(path, rows(start, start + 10), mode="append")


@golden
def empty(path: Path) -> None:
    """Created, never written to."""
    DeltaTable.create(path, rows(0, 1).schema)


@golden
def few_stats(path: Path) -> None:
    """Statistics on the first column only, then on named columns."""
    write_deltalake(path, rows(0, 10), configuration={"delta.dataSkippingNumIndexedCols": "1"})
    DeltaTable(path).alter.set_table_properties({"delta.dataSkippingStatsColumns": "amount,at"})
    write_deltalake(path, rows(10, 20), mode="append")


def make_all(root: Path) -> dict[str, Path]:
    """Write every table under `root`; name -> location."""
    made = {}
    for name, factory in TABLES.items():
        made[name] = root / name
        made[name].mkdir(parents=True)
        factory(made[name])
    return made
