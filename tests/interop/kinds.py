"""Every kind of commit, made by our write path: one generator a table, which yields the rows of each new version."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from deltalakedb.log.protocol.actions import AddCDCFile, AppTransaction, DomainMetadata, Metadata  # fmt: skip
from tests.interop import vectors
from tests.interop.maker import KINDS as KINDS
from tests.interop.maker import NOTHING, Maker, Steps, kind, numbers, remove, together


@kind
def plain(table: Maker) -> Steps:
    """What an ordinary table lives through."""
    table.create("id long, name string, amount double")
    yield NOTHING
    table.append(numbers(1, 2, 3))
    yield numbers(1, 2, 3)
    table.append(numbers(4, 5))
    yield numbers(1, 2, 3, 4, 5)
    table.actions(remove(table.files()[0]), operation="DELETE", read="table")
    yield numbers(4, 5)
    table.overwrite(numbers(6, 7, 8))
    yield numbers(6, 7, 8)
    table.append(numbers(9))
    yield numbers(6, 7, 8, 9)
    compacted = table.data_file(numbers(6, 7, 8, 9), data_change=False)
    rearranged = [remove(file, data_change=False) for file in table.files()]
    table.actions(*rearranged, compacted, operation="OPTIMIZE", read="table")
    yield numbers(6, 7, 8, 9)
    table.catalog.set_properties(table.name, {"owner": "ä, 'b'", "delta.logRetentionDuration": "interval 60 days"})
    yield numbers(6, 7, 8, 9)
    with table.catalog.begin() as tx:
        tx.add_columns(table.name, "note string, at timestamp")
    wider = together(
        numbers(6, 7, 8, 9),
        pa.table({"note": pa.array([], pa.string()), "at": pa.array([], pa.timestamp("us", "UTC"))}),
    )
    yield wider
    noted = numbers(10).append_column("note", [["new"]])
    noted = noted.append_column("at", pa.array([datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)], pa.timestamp("us", "UTC")))
    table.append(noted)
    yield together(wider, noted)
    table.append(noted.set_column(0, "id", [[11]]), app_transactions=[AppTransaction("app one", 7)])
    everything = together(wider, noted, noted.set_column(0, "id", [[11]]))
    yield everything
    table.actions(AppTransaction("app one", 8), AppTransaction("app/two", 1, 1_700_000_000_000))
    yield everything
    table.catalog.rename_table(table.name, f"{table.name}_renamed")
    table.name += "_renamed"
    yield everything
    table.overwrite(everything.slice(0, 0))
    yield everything.slice(0, 0)


@kind
def types(table: Maker) -> Steps:
    """A column of every type, with the ends of its range, nulls, and nested ones."""
    schema = pa.schema(
        {
            "id": pa.int64(), "b": pa.int8(), "s": pa.int16(), "i": pa.int32(), "f": pa.float32(), "d": pa.float64(),
            "yes": pa.bool_(), "text": pa.string(), "raw": pa.binary(), "day": pa.date32(),
            "at": pa.timestamp("us", "UTC"), "price": pa.decimal128(20, 3),
            "nest": pa.struct({"x": pa.int32(), "deep": pa.struct({"y": pa.string()})}),
            "list": pa.list_(pa.int64()), "map": pa.map_(pa.string(), pa.int32()),
        }
    )  # fmt: skip
    first = pa.Table.from_pylist(
        [
            {
                "id": 2**63 - 1, "b": -128, "s": -(2**15), "i": 2**31 - 1, "f": 1.5, "d": -1e300, "yes": True,
                "text": "ä€𝄞 'quoted' " + "long " * 20, "raw": b"\x00\xff", "day": date(1970, 1, 1),
                "at": datetime(2026, 1, 1, 10, 0, 0, 123456, UTC), "price": Decimal("12345678901234567.891"),
                "nest": {"x": 1, "deep": {"y": "z"}}, "list": [1, None, 3], "map": [("k", 1), ("l", None)],
            }
        ],
        schema,
    )  # fmt: skip
    second = pa.Table.from_pylist(
        [{"id": 1}, {"id": -1, "text": "", "raw": b"", "list": [], "nest": {"x": None, "deep": None}}], schema
    )
    with table.catalog.begin() as tx:
        tx.write(table.name, first, location=table.path)
    yield first
    table.append(second)
    yield together(first, second)


@kind
def partitioned(table: Maker) -> Steps:
    """Partitions by odd strings, dates and timestamps, null among them."""
    table.create("id long, city string, day date, at timestamp", ["city", "day", "at"])
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", "UTC")})
    first = pa.table(
        {
            "id": [1, 2, 3],
            "city": ["Zürich", "a b/c=d%", None],
            "day": [date(2026, 1, 1), date(2026, 1, 2), None],
            "at": [datetime(2026, 1, 1, 10, 0, 0, 123456, UTC), None, datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC)],
        },
        schema=schema,
    )
    second = pa.table({"id": [4], "city": ["Zürich"], "day": [date(1900, 1, 1)], "at": [None]}, schema=schema)
    yield first.slice(0, 0)
    table.append(first)
    yield first
    table.append(second)
    yield together(first, second)
    table.actions(*[remove(file) for file in table.files() if file.partition_values["city"] == "Zürich"], read="table")
    yield first.slice(1)
    table.overwrite(together(second, first))
    yield together(first, second)


@kind
def deletion_vectors(table: Maker) -> Steps:
    """A vector inline, the same file's next one in a file, and the file rewritten without any."""
    table.create("id long, name string, amount double", enableDeletionVectors="true")
    yield NOTHING
    table.append(numbers(*range(20)))
    yield numbers(*range(20))
    (whole,) = table.files()
    assert whole.stats is not None
    loose = json.dumps(json.loads(whole.stats) | {"tightBounds": False})
    once = replace(whole, stats=loose, deletion_vector=vectors.inline([0, 7]))
    table.actions(remove(whole), once, operation="DELETE", read=[whole.path])
    yield numbers(*(n for n in range(20) if n not in (0, 7)))
    twice = replace(once, deletion_vector=vectors.in_file(table.path, [0, 7, 19]))
    table.actions(remove(once), twice, operation="DELETE", read=[whole.path])
    left = [n for n in range(20) if n not in (0, 7, 19)]
    yield numbers(*left)
    table.append(numbers(100))
    yield numbers(*left, 100)
    purged = table.data_file(numbers(*left), data_change=False)
    table.actions(remove(twice, data_change=False), purged, operation="REORG", read="table")
    yield numbers(*left, 100)


@kind
def column_mapping(table: Maker) -> Steps:
    """Reader version 2: columns mapped by name, one renamed, one added, one dropped."""
    table.create("id long, `old name` string, gone double", columnMapping__mode="name")
    schema = pa.schema({"id": pa.int64(), "old name": pa.string(), "gone": pa.float64()})
    first = pa.table({"id": [1, 2], "old name": ["x", None], "gone": [0.5, None]}, schema=schema)
    yield first.slice(0, 0)
    table.append(first)
    yield first
    table.actions(_renamed(table.metadata, "old name", "new, name"), operation="RENAME COLUMN")
    renamed = first.rename_columns(["id", "new, name", "gone"])
    yield renamed
    with table.catalog.begin() as tx:
        tx.add_columns(table.name, "note string")
    yield together(renamed, pa.table({"note": pa.array([], pa.string())}))
    second = pa.table({"id": [3], "new, name": ["x"], "gone": [1.5], "note": ["n"]})
    table.append(second)
    yield together(renamed, second)
    table.actions(_dropped(table.metadata, "gone"), operation="DROP COLUMNS")
    yield together(renamed, second).drop_columns("gone")


@kind
def mapped_partitions(table: Maker) -> Steps:
    """Column mapping with a partition column, which is renamed."""
    table.create("id long, name string, amount double", ["name"], columnMapping__mode="name")
    yield NOTHING
    table.append(numbers(1, 2))
    yield numbers(1, 2)
    table.actions(_renamed(table.metadata, "name", "called"), operation="RENAME COLUMN")
    yield numbers(1, 2).rename_columns(["id", "called", "amount"])


def _renamed(metadata: Metadata, old: str, new: str) -> Metadata:
    schema = json.loads(metadata.schema_string)
    for field in schema["fields"]:
        field["name"] = new if field["name"] == old else field["name"]
    columns = tuple(new if column == old else column for column in metadata.partition_columns)
    return replace(metadata, schema_string=json.dumps(schema), partition_columns=columns)


def _dropped(metadata: Metadata, name: str) -> Metadata:
    schema = json.loads(metadata.schema_string)
    schema["fields"] = [field for field in schema["fields"] if field["name"] != name]
    return replace(metadata, schema_string=json.dumps(schema))


@kind
def mapping_turned_on(table: Maker) -> Steps:
    """A plain table that becomes one with column mapping: its old files keep their names."""
    table.create("id long, name string, amount double")
    yield NOTHING
    table.append(numbers(1))
    yield numbers(1)
    table.set_properties(columnMapping__mode="name")
    yield numbers(1)
    table.actions(_renamed(table.metadata, "name", "called"), operation="RENAME COLUMN")
    names = ["id", "called", "amount"]
    yield numbers(1).rename_columns(names)
    table.append(numbers(2).rename_columns(names))
    yield numbers(1, 2).rename_columns(names)


@kind
def timestamp_ntz(table: Maker) -> Steps:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us")})
    rows = pa.table({"id": [1, 2], "at": [datetime(2026, 1, 1, 10, 0, 0, 123456), None]}, schema=schema)
    table.create("id long, at timestamp_ntz")
    yield rows.slice(0, 0)
    table.append(rows)
    yield rows
    table.overwrite(rows.slice(1))
    yield rows.slice(1)


@kind
def domain_metadata(table: Maker) -> Steps:
    """A domain of an application set, changed with data beside it, and removed."""
    table.create("id long, name string, amount double", feature__domainMetadata="supported")
    yield NOTHING
    table.actions(DomainMetadata("app.settings", '{"a": 1}', removed=False))
    yield NOTHING
    added = table.data_file(numbers(1, 2))
    table.actions(added, DomainMetadata("app.settings", '{"a": 2}', removed=False))
    yield numbers(1, 2)
    table.actions(DomainMetadata("app.settings", "", removed=True))
    yield numbers(1, 2)


@kind
def in_commit_timestamps(table: Maker) -> Steps:
    table.create("id long, name string, amount double", enableInCommitTimestamps="true")
    yield NOTHING
    table.append(numbers(1))
    yield numbers(1)
    table.append(numbers(2))
    yield numbers(1, 2)


@kind
def in_commit_timestamps_later(table: Maker) -> Steps:
    """Enabled on a table that has versions without."""
    table.create("id long, name string, amount double")
    yield NOTHING
    table.append(numbers(1))
    yield numbers(1)
    table.set_properties(enableInCommitTimestamps="true")
    yield numbers(1)
    table.append(numbers(2))
    yield numbers(1, 2)


@kind
def change_feed(table: Maker) -> Steps:
    """An update that writes its change data."""
    table.create("id long, name string, amount double", enableChangeDataFeed="true")
    yield NOTHING
    table.append(numbers(1, 2))
    yield numbers(1, 2)
    changed = numbers(1, 2).set_column(1, "name", [["name 1", "changed"]])
    change = together(numbers(2), changed.slice(1))
    change = change.append_column("_change_type", [["update_preimage", "update_postimage"]])
    cdc = table.data_file(change, folder="_change_data/")
    (before,) = table.files()
    table.actions(
        remove(before), table.data_file(changed), AddCDCFile(cdc.path, {}, cdc.size, False), operation="UPDATE",
        read=[before.path],
    )  # fmt: skip
    yield changed


@kind
def row_tracking(table: Maker) -> Steps:
    table.create("id long, name string, amount double", enableRowTracking="true")
    yield NOTHING
    table.append(numbers(1, 2))
    yield numbers(1, 2)
    table.append(numbers(3))
    yield numbers(1, 2, 3)


@kind
def stats_as_struct(table: Maker) -> Steps:
    """Checkpoints of this table hold statistics and partition values as structs only."""
    table.create(
        "id long, name string, amount double", ["name"], checkpoint__writeStatsAsStruct="true",
        checkpoint__writeStatsAsJson="false",
    )  # fmt: skip
    yield NOTHING
    table.append(numbers(1, 2))
    yield numbers(1, 2)
    table.append(numbers(3))
    yield numbers(1, 2, 3)


@kind
def type_widening(table: Maker) -> Steps:
    """A column whose type grew; its old file keeps the narrower one."""
    schema = pa.schema({"id": pa.int64(), "n": pa.int32()})
    narrow = pa.table({"id": [1], "n": [2**31 - 1]}, schema=schema)
    table.create("id long, n integer", enableTypeWidening="true")
    yield narrow.slice(0, 0)
    table.append(narrow)
    yield narrow
    metadata = table.metadata
    widened = json.loads(metadata.schema_string)
    widened["fields"][1] |= {
        "type": "long", "metadata": {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]},
    }  # fmt: skip
    table.actions(replace(metadata, schema_string=json.dumps(widened)), operation="CHANGE COLUMN")
    wide = narrow.set_column(1, "n", [pa.array([2**31 - 1], pa.int64())])
    yield wide
    table.append(pa.table({"id": [2], "n": [2**40]}))
    yield together(wide, pa.table({"id": [2], "n": [2**40]}))


@kind
def v2_checkpoint(table: Maker) -> Steps:
    """The feature is listed; our checkpoints stay classic, which it allows."""
    table.create("id long, name string, amount double", feature__v2Checkpoint="supported")
    yield NOTHING
    table.append(numbers(1))
    yield numbers(1)


@kind
def vacuum_protocol_check(table: Maker) -> Steps:
    table.create("id long, name string, amount double", feature__vacuumProtocolCheck="supported")
    yield NOTHING
    table.append(numbers(1))
    yield numbers(1)


@kind
def detached(table: Maker) -> Steps:
    """Given back to its files: the last commit takes the fence off."""
    table.create("id long, name string, amount double")
    yield NOTHING
    table.append(numbers(1))
    yield numbers(1)
    table.detach()
    yield numbers(1)
