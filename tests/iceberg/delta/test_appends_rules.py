"""Rules of Delta tables for rows of Iceberg clients, who know none of them: the new files are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import BadRequestError
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from deltalakedb import Catalog
from deltalakedb.schema import Field, PrimitiveType, Schema
from tests.conformance.transacting import days, ids_in, numbers
from tests.iceberg.delta.appending import Append, Lake, ManifestToWrite, data_files


def create(catalog: Catalog, *columns: Field, partition_by: Sequence[str] = (), **properties: str) -> None:
    with catalog.begin() as tx:
        tx.create_table("shop.t", Schema(list(columns)), partition_by, properties=properties)


def column(name: str, kind: str, metadata: dict[str, Any] | None = None, *, nullable: bool = True) -> Field:
    return Field(name, PrimitiveType(kind), nullable, metadata or {})


ID = column("id", "long")


def replaced(table: Table, rows: pa.Table, file_rows: pa.Table, **options: Any) -> Append:
    """An append of rows whose Parquet files are others, which a client did not look at."""
    files = data_files(table, rows)
    for file in files:
        pq.write_table(file_rows, file.file_path.removeprefix("file://"), **options)
    return Append(table, files)


def refused(catalog: Catalog, lake: Lake, append: Append) -> str:
    """The sentence with which an append is refused, without its beginning, which names the file."""
    before = catalog.table("shop.t").version()
    answer = lake.post(append.body())
    assert answer.error == (400, "BadRequestException"), answer.body
    assert catalog.table("shop.t").version() == before
    name = append.files[0].file_path.removeprefix(f"{append.table.location()}/")
    start = f"shop.t: the file {name} "
    assert answer.message.startswith(start), answer.message
    return answer.message.removeprefix(start)


# ---- names and types


def test_types_that_are_not_the_table_s_are_refused(catalog: Catalog, lake: Lake) -> None:
    """PyIceberg's second try of a commit calls its old files by the newest schema."""
    create(catalog, ID, column("f", "float"), column("t", "timestamp"), column("d", "date"))
    rows = pa.table(
        {"id": pa.array([1], pa.int64()), "f": pa.array([1.0], pa.float32()),
         "t": pa.array([0], pa.timestamp("us", "UTC")), "d": pa.array([0], pa.date32())}
    )  # fmt: skip
    cases = {
        "id": (pa.array(["1"]), "string", "long"),
        "f": (pa.array([1.0], pa.float64()), "double", "float"),
        "t": (pa.array([0], pa.timestamp("us")), "timestamp[us]", "timestamp"),
        "d": (pa.array([0], pa.int32()), "int32", "date"),
    }
    for name, (values, stored, kind) in cases.items():
        theirs = rows.set_column(rows.schema.get_field_index(name), name, values)
        message = (
            f"does not fit the table: its column {name} is of the type {stored}, and the table's of the type {kind}"
        )
        assert refused(catalog, lake, replaced(lake.load(), rows, theirs)) == message


def test_columns_that_the_table_does_not_have_are_refused(catalog: Catalog, lake: Lake) -> None:
    create(catalog, ID)
    rows = days((1, "a"))
    message = "does not fit the table: it has the column day, which the table does not have"
    assert refused(catalog, lake, replaced(lake.load(), numbers(1), rows)) == message
    message = "does not fit the table: it has the column ID, which the table does not have"
    assert refused(catalog, lake, replaced(lake.load(), numbers(1), numbers(1).rename_columns(["ID"]))) == message


def test_field_ids_of_another_column_are_refused(catalog: Catalog, lake: Lake) -> None:
    create(catalog, ID)
    wrong = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "77"})
    theirs = pa.table([pa.array([1], pa.int64())], schema=pa.schema([wrong]))
    message = "does not fit the table: its column id has the field id 77, and the table's has 1"
    assert refused(catalog, lake, replaced(lake.load(), numbers(1), theirs)) == message


def test_types_within_others_are_compared(catalog: Catalog, lake: Lake) -> None:
    kind = pa.struct([("a", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32()))])
    rows = pa.table({"id": pa.array([1], pa.int64()), "s": pa.array([{"a": [1], "m": [("k", 1)]}], kind)})
    with catalog.begin() as tx:
        tx.write("shop.t", rows)
    for inner, message in (
        (
            {"a": ["x"], "m": [("k", 1)]},
            "its column s.a.element is of the type string, and the table's of the type long",
        ),
        (
            {"a": [1], "m": [("k", "v")]},
            "its column s.m.value is of the type string, and the table's of the type integer",
        ),
        ({"a": [1], "b": 5, "m": [("k", 1)]}, "it has the column s.b, which the table does not have"),
        ({"a": 1, "m": [("k", 1)]}, "its column s.a is of the type int64, and the table's of the type array<long>"),
    ):
        fields = [
            (
                name,
                pa.map_(pa.string(), pa.string() if value == [("k", "v")] else pa.int32())
                if name == "m"
                else pa.scalar(value).type,
            )
            for name, value in inner.items()
        ]
        theirs = rows.set_column(1, "s", pa.array([inner], pa.struct(fields)))
        assert refused(catalog, lake, replaced(lake.load(), rows, theirs)) == f"does not fit the table: {message}"


@pytest.mark.parametrize(
    "kind",
    [pa.large_list(pa.large_string()), pa.list_(pa.string_view()), pa.list_(pa.dictionary(pa.int32(), pa.string()))],
)
def test_arrow_s_other_forms_of_a_type_are_taken(catalog: Catalog, lake: Lake, kind: pa.DataType) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "l": pa.array([["a", None]], pa.list_(pa.string()))})
    with catalog.begin() as tx:
        tx.write("shop.t", rows)
    values = (
        pa.array([["a", None]], pa.list_(pa.string())).cast(kind)
        if "dictionary" not in str(kind)
        else pa.ListArray.from_arrays([0, 2], pa.array(["a", None]).dictionary_encode())
    )
    append = replaced(lake.load(), rows, pa.table({"id": rows["id"], "l": values}))
    assert lake.post(append.body()).status == 200
    assert catalog.table("shop.t").to_pyarrow_table()["l"].to_pylist() == [["a", None]] * 2


# ---- nulls


@pytest.mark.parametrize("statistics", [True, False])
def test_nulls_are_refused_where_the_table_has_none(catalog: Catalog, lake: Lake, statistics: bool) -> None:
    create(catalog, column("id", "long", nullable=False), column("note", "string"))
    rows = pa.table(
        {"id": [1], "note": ["a"]},
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())]),
    )
    theirs = pa.table({"id": pa.array([1, None], pa.int64()), "note": ["a", "b"]})
    message = "breaks a rule of the table: column 'id': the table does not let it be null"
    append = replaced(lake.load(), rows, theirs, write_statistics=statistics)
    assert refused(catalog, lake, append) == message
    message = "does not fit the table: it does not have the column id, which must not be null"
    assert refused(catalog, lake, replaced(lake.load(), rows, theirs.select(["note"]))) == message
    append = replaced(lake.load(), rows, theirs.slice(0, 1), write_statistics=statistics)
    assert lake.post(append.body()).status == 200


def test_nulls_within_columns_are_refused_where_the_table_has_none(catalog: Catalog, lake: Lake) -> None:
    kind = pa.list_(pa.field("element", pa.int32(), nullable=False))
    rows = pa.table({"id": pa.array([1], pa.int64()), "l": pa.array([[1]], kind)})
    with catalog.begin() as tx:
        tx.write("shop.t", rows)
    theirs = pa.table({"id": rows["id"], "l": pa.array([[1, None]], pa.list_(pa.int32()))})
    message = (
        "breaks a rule of the table: column 'l.element': the table does not let it be null, and row 1 of the data is"
    )
    assert refused(catalog, lake, replaced(lake.load(), rows, theirs)) == message
    assert lake.append(rows).status == 200


def test_a_partition_column_that_must_not_be_null_is_not(catalog: Catalog, lake: Lake) -> None:
    create(catalog, ID, column("day", "string", nullable=False), partition_by=["day"])
    table = lake.load()
    required = pa.schema([("id", pa.int64()), pa.field("day", pa.string(), nullable=False)])
    (file,) = data_files(table, days((1, "a")).cast(required))
    file.partition[0] = None
    fields = [NestedField(item.field_id, item.name, item.field_type, required=False) for item in table.schema().fields]
    append = Append(table, [file], manifests=[ManifestToWrite([file], schema=IcebergSchema(*fields))])
    message = (
        "has the partition value None of the column day: column 'day': the table does not let it be null, and an empty "
        "partition value is null"
    )
    assert refused(catalog, lake, append) == message


# ---- numbers


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(("kind", "largest", "name"), [("byte", 127, "Int8"), ("short", 32767, "Int16")])
def test_small_integers_keep_their_range(
    catalog: Catalog, lake: Lake, kind: str, largest: int, name: str, statistics: bool
) -> None:
    """Iceberg has no such types: its clients write integers of 32 bits."""
    create(catalog, ID, column("n", kind))
    good = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "n": pa.array([largest, -largest - 1, None], pa.int32())})
    bad = pa.table({"id": pa.array([1], pa.int64()), "n": pa.array([largest + 1], pa.int32())})
    append = replaced(lake.load(), good, good, write_statistics=statistics)
    assert lake.post(append.body()).status == 200
    append = replaced(lake.load(), bad, bad, write_statistics=statistics)
    assert refused(catalog, lake, append) == (
        f"breaks a rule of the table: Cast error: Can't cast value {largest + 1} to type {name}; column 'n': the table "
        f"has {kind}, the data has int32"
    )
    assert catalog.table("shop.t").to_pyarrow_table()["n"].to_pylist() == [largest, -largest - 1, None]


def test_small_integers_within_columns_keep_their_range(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", pa.table({"id": pa.array([1], pa.int64()), "l": pa.array([[1]], pa.list_(pa.int8()))}))
    rows = pa.table({"id": pa.array([1], pa.int64()), "l": pa.array([[1, 200]], pa.list_(pa.int32()))})
    table = lake.load()
    assert refused(catalog, lake, Append(table, data_files(table, rows))).startswith(
        "breaks a rule of the table: Cast error: Can't cast value 200 to type Int8; column 'l.element'"
    )


# ---- rules in SQL


def test_check_constraints_are_evaluated(catalog: Catalog, lake: Lake) -> None:
    create(
        catalog,
        ID,
        column("day", "string"),
        partition_by=["day"],
        **{"delta.constraints.positive": "id > 0 or day = 'x'"},
    )
    lake.load().append(days((1, "a"), (-1, "x")))
    table = lake.load()
    message = "breaks a rule of the table: these rows break the constraint positive, id > 0 or day = 'x'"
    assert refused(catalog, lake, Append(table, data_files(table, days((2, "a"), (-2, "a"))))) == message
    with pytest.raises(BadRequestError, match="these rows break the constraint positive"):
        lake.load().append(days((-2, "a")))
    assert ids_in(catalog, "shop.t") == [-1, 1]


def test_constraints_on_columns_that_the_file_does_not_have_see_nulls(catalog: Catalog, lake: Lake) -> None:
    create(catalog, ID, column("day", "string"), **{"delta.constraints.known": "day is not null"})
    table = lake.load()
    message = "breaks a rule of the table: these rows break the constraint known, day is not null"
    assert refused(catalog, lake, replaced(table, days((1, "a")), numbers(1))) == message


def test_invariants_are_evaluated(catalog: Catalog, lake: Lake) -> None:
    create(catalog, column("id", "long", {"delta.invariants": '{"expression":{"expression":"id < 10"}}'}))
    lake.load().append(numbers(9))
    table = lake.load()
    message = "breaks a rule of the table: these rows break the invariant of column id, id < 10"
    assert refused(catalog, lake, Append(table, data_files(table, numbers(10)))) == message


def test_generated_columns_must_have_their_values(catalog: Catalog, lake: Lake) -> None:
    create(catalog, ID, column("twice", "long", {"delta.generationExpression": "id * 2"}))

    def rows(*pairs: tuple[int, int | None]) -> pa.Table:
        return pa.table(
            {"id": pa.array([a for a, _ in pairs], pa.int64()), "twice": pa.array([b for _, b in pairs], pa.int64())}
        )

    lake.load().append(rows((1, 2), (5, 10)))
    message = (
        "breaks a rule of the table: these rows break the generation of column twice, `twice` is not distinct from "
        "(id * 2)"
    )
    for wrong in (rows((1, 3)), rows((1, None))):
        table = lake.load()
        assert refused(catalog, lake, Append(table, data_files(table, wrong))) == message
    assert refused(catalog, lake, replaced(lake.load(), rows((1, 2)), numbers(1))) == message


def test_lengths_of_texts_are_kept(catalog: Catalog, lake: Lake) -> None:
    create(catalog, ID, column("day", "string", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}))
    lake.load().append(days((1, "äöü")))
    table = lake.load()
    message = "breaks a rule of the table: a text in the column day, which is a varchar(3), has 4 characters"
    assert refused(catalog, lake, Append(table, data_files(table, days((2, "abcd"))))) == message


def test_missing_columns_with_a_default_are_null(catalog: Catalog, lake: Lake) -> None:
    """As in an INSERT of Spark into an Iceberg table: the client gave no value, and none is invented."""
    create(
        catalog,
        ID,
        column("day", "string", {"CURRENT_DEFAULT": "'x'"}),
        **{"delta.feature.allowColumnDefaults": "supported"},
    )
    assert lake.post(replaced(lake.load(), days((1, "a")), numbers(1)).body()).status == 200
    assert catalog.table("shop.t").to_pyarrow_table()["day"].to_pylist() == [None]


# ---- tables whose rules cannot be checked


def cannot(why: str) -> str:
    return f"shop.t is a Delta table that Iceberg clients cannot append to: {why}"


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
TABLES: dict[str, tuple[list[Field], dict[str, str], str]] = {
    "identity": (
        [column("id", "long", IDENTITY)],
        {},
        "its identity column id gets its values from Delta's writers",
    ),
    "lengths": (
        [Field("id", PrimitiveType("string"), True, {"__CHAR_VARCHAR_TYPE_STRING": "struct<a:varchar(3)>"})],
        {},
        "the lengths of texts in its column id, struct<a:varchar(3)>, cannot be checked",
    ),
    "compatibility": (
        [ID],
        {"delta.columnMapping.mode": "name", "delta.enableIcebergCompatV2": "true"},
        "its column id has another name in its files (column mapping), which they do not write",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_whose_rules_cannot_be_checked_take_no_appends(catalog: Catalog, lake: Lake, name: str) -> None:
    columns, properties, why = TABLES[name]
    create(catalog, *columns, **properties)
    answer = lake.post(Append(lake.load()).body())
    assert answer.error == (400, "BadRequestException")
    assert answer.message == cannot(why)
    assert catalog.table("shop.t").version() == 0
