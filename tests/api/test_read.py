"""Reading members of DeltaTable: the same rows, shapes and errors as `deltalake`'s."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import deltalakedb as dl
from tests.api.both import Both, Library

DAYS = [date(2026, 1, 1), date(2026, 1, 2), None]


def rows(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    at = [datetime(2026, 1, 1, 0, 0, n % 60, 123456, tzinfo=UTC) for n in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([DAYS[n % 3] for n in ids], pa.date32()),
            "text": pa.array([None if n % 5 == 0 else f"text {n}" for n in ids]),
            "price": pa.array([Decimal(n) / 4 for n in ids], pa.decimal128(10, 2)),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "part": [{"x": n} for n in ids],
        }
    )


@pytest.fixture
def read(anywhere: Both) -> Both:
    anywhere.seed(rows(0, 20), rows(20, 40), rows(40, 60), partition_by=["day"])
    return anywhere


FILTERS: list[Any] = [
    None,
    [("id", ">", 30)],
    [("id", ">=", 10), ("id", "<", 15)],
    [[("id", "=", 3)], [("id", "=", 57), ("text", "!=", "none")]],
    [("text", "in", ["text 1", "text 41"])],
    [("day", "=", date(2026, 1, 2))],
    pc.field("id") > 50,
    (pc.field("price") > Decimal("14.00")) & pc.field("text").is_valid(),
    ~(pc.field("id") < 55) | pc.field("day").is_null(),
    pc.field("at") >= datetime(2026, 1, 1, 0, 0, 58, tzinfo=UTC),
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_rows_are_filtered_exactly(read: Both, filters: Any) -> None:
    read.same(lambda lib: lib.table().to_pyarrow_table(filters=filters))
    read.same(lambda lib: lib.table().to_pyarrow_table(columns=["text", "id"], filters=filters))


def test_columns_are_what_pyarrow_takes(read: Both) -> None:
    read.same(lambda lib: lib.table().to_pyarrow_table(columns={"twice": ds.field("id") * 2}))
    read.same(lambda lib: lib.table().to_pyarrow_table(columns=["part.x"], filters=[("id", "<", 3)]))
    read.fails(lambda lib: lib.table().to_pyarrow_table(columns=["nosuch"]))
    read.fails(lambda lib: lib.table().to_pyarrow_table(filters=[("nosuch", "=", 1)]))


def test_partitions_choose_files_and_are_deprecated(read: Both) -> None:
    chosen = [("day", "=", "2026-01-02")]
    read.same(lambda lib: lib.table().to_pyarrow_table(partitions=chosen))
    read.same(lambda lib: lib.table().to_pyarrow_dataset(partitions=chosen))
    read.fails(lambda lib: lib.table().to_pyarrow_dataset(partitions=chosen, file_pruning_predicate="id > 1"))


def test_pandas_gets_the_same_frame(read: Both) -> None:
    read.same(lambda lib: lib.table().to_pandas(columns=["id", "price"]).sort_values("id", ignore_index=True))


@pytest.mark.parametrize("predicate", [None, "id > 30", "day = '2026-01-02' and id < 9", "text is null", "id > 99"])
def test_a_scan_gives_exactly_the_matching_rows(read: Both, predicate: str | None) -> None:
    for columns in (None, ["text", "id"]):
        theirs, ours = (lib.table().scan(columns, predicate) for lib in read.libraries)
        found, expected = pa.table(ours), pa.table(theirs)
        assert found.schema.equals(expected.schema)
        assert sorted(found.to_pylist(), key=lambda row: row["id"]) == sorted(
            expected.to_pylist(), key=lambda row: row["id"]
        )


@pytest.mark.parametrize("arguments", [{"columns": ["nosuch"]}, {"predicate": "nosuch > 1"}, {"predicate": "id >"}])
def test_a_scan_of_what_is_not_there_fails(read: Both, arguments: Any) -> None:
    read.fails(lambda lib: lib.table().scan(**arguments))


# -- datasets


@pytest.mark.parametrize("predicate", [None, [], "id > 30", [("id", ">", 30)], [[("id", "=", 3)], [("id", "=", 57)]]])
def test_a_dataset_has_the_files_that_may_match(read: Both, predicate: Any) -> None:
    theirs, ours = (lib.table().to_pyarrow_dataset(file_pruning_predicate=predicate) for lib in read.libraries)
    assert isinstance(ours, ds.FileSystemDataset)
    assert ours.schema.equals(theirs.schema)
    assert len(ours.files) == len(theirs.files)
    assert ours.to_table().sort_by("id").equals(theirs.to_table().sort_by("id"))


def test_fragments_are_guaranteed_to_hold_what_the_log_says(read: Both) -> None:
    condition = (ds.field("id") > 45) & (ds.field("day") == date(2026, 1, 2))
    theirs, ours = (lib.table().to_pyarrow_dataset() for lib in read.libraries)
    assert len(list(ours.get_fragments(condition))) == len(list(theirs.get_fragments(condition))) == 1
    for name in ("price", "text"):  # a bound too many would lose rows here
        for value in ours.to_table().column(name).unique():
            found = ours.to_table(filter=ds.field(name) == value)
            assert found.num_rows == theirs.to_table(filter=ds.field(name) == value).num_rows


def test_a_dataset_takes_types_schema_options_and_file_system(read: Both) -> None:
    read.same(lambda lib: lib.table().to_pyarrow_dataset(as_large_types=True))
    options = ds.ParquetReadOptions(dictionary_columns={"text"})
    theirs, ours = (lib.table().to_pyarrow_dataset(parquet_read_options=options) for lib in read.libraries)
    assert ours.schema.equals(theirs.schema)
    assert pa.types.is_dictionary(ours.to_table().schema.field("text").type)
    narrow = pa.schema([("id", pa.int64())])
    assert read.ours.table().to_pyarrow_dataset(schema=narrow).to_table().column_names == ["id"]
    folder = pa.fs.SubTreeFileSystem(str(read.ours.folder), pa.fs.LocalFileSystem())
    assert read.ours.table().to_pyarrow_dataset(filesystem=folder).count_rows() == 60
    assert read.ours.table().to_pyarrow_table(filesystem=folder, columns=["id"]).num_rows == 60


@pytest.mark.parametrize("predicate", ["nosuch > 5", [("nosuch", ">", 5)], [("id", "~", 5)], [[]]])
def test_a_predicate_that_chooses_no_files_fails(read: Both, predicate: Any) -> None:
    read.fails(lambda lib: lib.table().to_pyarrow_dataset(file_pruning_predicate=predicate))
    read.fails(lambda lib: lib.table().file_uris(file_pruning_predicate=predicate))


def test_a_row_that_is_not_a_number_is_never_pruned_away(both: Both) -> None:
    both.seed({"f": [1.0, 2.0, float("nan")]})
    (fragment,) = both.ours.table().to_pyarrow_dataset().get_fragments()
    assert "f <=" not in str(fragment.partition_expression)
    assert both.ours.table().to_pyarrow_table(filters=~(pc.field("f") <= 2.0)).num_rows == 1


def test_a_dataset_of_mapped_columns_and_of_deleted_rows_is_right(tmp_path: Path) -> None:
    """`deltalake` refuses both."""
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as catalog:
        mapping = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
        catalog.create_table("t", "id long, kind string", ["kind"], properties=mapping)
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1, 2, 3, 4], "kind": ["a", "a", "a", "b"]}), mode="append")
        table = catalog.table("t")
        table.delete("id = 2")
        table.update_incremental()
        dataset = table.to_pyarrow_dataset()
        expected = [{"id": 1, "kind": "a"}, {"id": 3, "kind": "a"}, {"id": 4, "kind": "b"}]
        assert dataset.to_table().sort_by("id").to_pylist() == expected
        assert dataset.to_table(filter=ds.field("kind") == "b").to_pylist() == expected[2:]
        assert dataset.to_table(columns=["id"], filter=ds.field("id") > 1).num_rows == 2
        with pytest.raises(NotImplementedError, match="only read"):
            dataset.filesystem.delete_file(dataset.files[0])
        (vector,) = pa.table(table.deletion_vectors()).to_pylist()
        assert vector["selection_vector"] == [True, False, True]


def test_deletion_vectors_have_deltalakes_shape(on_paths: Both) -> None:
    on_paths.seed({"id": [1, 2, 3, 4, 5]}, configuration={"delta.enableDeletionVectors": "true"})
    theirs, ours = (lib.table().deletion_vectors() for lib in on_paths.libraries)
    assert pa.table(ours).schema.equals(pa.table(theirs).schema)
    on_paths.ours.table().delete("id = 2")
    import deltalake

    judged = pa.table(deltalake.DeltaTable(on_paths.ours.uri).deletion_vectors()).to_pylist()
    assert pa.table(on_paths.ours.table().deletion_vectors()).to_pylist() == judged
    assert len(judged) == 1


# -- planned by what is asked


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.scan(predicate="id = 33").read_all(),
        lambda table: table.to_pyarrow_table(filters=[("id", "=", 33)]),
        lambda table: table.to_pyarrow_table(filters=pc.field("id") == 33),
        lambda table: table.lazy_dataset().to_table(filter=pc.field("id") == 33),
        lambda table: dl.QueryBuilder().register("t", table).execute("select * from t where id = 33").read_all(),
    ],
)
def test_a_read_of_one_row_needs_one_file(both: Both, ask: Any) -> None:
    both.ours.seed([rows(n, n + 10).drop_columns(["day"]) for n in range(0, 60, 10)], [], {})
    table = both.ours.table()
    (wanted,) = table.file_uris(file_pruning_predicate="id = 33")
    for path in set(table.file_uris()) - {wanted}:
        Path(path).unlink()
    assert ask(table).column("id").to_pylist() == [33]


# -- what a table is


def test_answers_about_the_table_are_the_same(read: Both) -> None:
    for call in (
        lambda lib: lib.table().version(),
        lambda lib: lib.table().count(),
        lambda lib: lib.table().table_config,
        lambda lib: lib.table().transaction_version("nobody"),
        lambda lib: sorted(map(str, lib.table().partitions())),
        lambda lib: sorted(map(str, lib.table().partitions(file_pruning_predicate="day = '2026-01-02'"))),
        lambda lib: len(lib.table().file_uris(file_pruning_predicate=[("day", "=", "")])),
        lambda lib: lib.table().metadata().partition_columns,
        lambda lib: lib.table().history(0),
    ):
        read.same(call, exactly=True)
    read.same(lambda lib: lib.table().get_add_actions(flatten=True).schema.names, exactly=True)


def test_time_travel_takes_numbers_texts_and_times(read: Both) -> None:
    def travelled(lib: Library, target: Any) -> int:
        table = lib.table()
        table.load_as_version(target)
        return int(table.version())

    for target in (1, "2099-01-01T00:00:00Z", datetime(2099, 1, 1), datetime(2099, 1, 1, tzinfo=UTC)):
        read.same(partial(travelled, target=target), exactly=True)
    for wrong in (99, -1, "nope", 1.5):
        read.fails(partial(travelled, target=wrong))
    read.fails(lambda lib: lib.table().history(-1))


# -- queries


QUERIES = [
    "select count(*) as n, max(id) as m, sum(id) as s from t where id > 10",
    "select a.id, b.text from t a join t b on a.id = b.id + 1 where a.day = '2026-01-02'",
    "select day, count(*) as n from t group by day order by day",
    "select id, part['x'] as x from t where text like 'text 1%'",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_give_the_same_answers(read: Both, sql: str) -> None:
    read.same(lambda lib: lib.module.QueryBuilder().register("t", lib.table()).execute(sql))


@pytest.mark.parametrize("sql", ["select * from nosuch", "selec", "select nosuch from t", "select 1; select 2", ""])
def test_queries_that_cannot_be_answered_fail(read: Both, sql: str) -> None:
    read.fails(lambda lib: lib.module.QueryBuilder().register("t", lib.table()).execute(sql))


def test_a_query_can_be_given_a_name(read: Both) -> None:
    def ask(lib: Library, *statements: str) -> Any:
        queries = lib.module.QueryBuilder().register("t", lib.table())
        return [queries.execute(statement) for statement in statements][-1]

    view = "create view v as select day, count(*) as n from t group by day"
    read.same(lambda lib: ask(lib, view, "select v.n, v.day from v order by day"))
    read.same(lambda lib: ask(lib, view, "create or replace view v as select id from t", "select max(id) as m from v"))
    read.same(lambda lib: ask(lib, view, "drop view v", "create table v as select 1 as a", "select * from v"))
    read.same(lambda lib: ask(lib, "select g.value from generate_series(1, 7, 3) as g order by 1"))
    read.fails(lambda lib: ask(lib, view, view))
    read.fails(lambda lib: ask(lib, view, "drop table v", "select * from v"))
    plan = pa.table(ask(read.ours, view, "explain select * from v"))
    assert plan["plan_type"].to_pylist() == ["physical_plan"]


def test_a_query_builder_refuses_what_it_cannot_take(both: Both) -> None:
    both.seed({"id": [1]})
    both.fails(lambda lib: lib.module.QueryBuilder({"nosuch": "1"}))
    both.fails(lambda lib: lib.module.QueryBuilder().register("t", lib.table()).register("t", lib.table()))
    with pytest.raises(dl.DeltaError, match="only reads"):
        dl.QueryBuilder().execute("insert into x values (1)")
    with pytest.raises(dl.DeltaError, match="disabled"):
        dl.QueryBuilder().execute("select * from read_csv('/etc/passwd')")
