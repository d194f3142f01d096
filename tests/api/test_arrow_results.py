"""What `deltalake` returns as an object of arro3, we return as one of the same class: all its members are there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import arro3.core
import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

from tests.api.both import Both, Library
from tests.api.signatures import members

RESULTS: dict[str, Callable[[Library], Any]] = {
    "DeltaTable.scan": lambda lib: lib.table().scan(),
    "DeltaTable.load_cdf": lambda lib: lib.table().load_cdf(),
    "DeltaTable.deletion_vectors": lambda lib: lib.table().deletion_vectors(),
    "DeltaTable.get_add_actions": lambda lib: lib.table().get_add_actions(),
    "QueryBuilder.execute": lambda lib: lib.module.QueryBuilder().register("t", lib.table()).execute("select * from t"),
    "Schema.to_arrow": lambda lib: lib.table().schema().to_arrow(as_large_types=True),
    "Field.to_arrow": lambda lib: lib.find("schema.Field")("x", "long", metadata={"a": "b"}).to_arrow(),
    "VariantType.to_arrow": lambda lib: lib.find("schema.VariantType")().to_arrow(),
    "schema.PrimitiveType.to_arrow": lambda lib: lib.find("schema.PrimitiveType")("decimal(5,2)").to_arrow(),
    "schema.ArrayType.to_arrow": lambda lib: lib.find("schema.ArrayType")("string").to_arrow(),
    "schema.MapType.to_arrow": lambda lib: lib.find("schema.MapType")("string", "date").to_arrow(),
    "schema.StructType.to_arrow": lambda lib: lib.find("schema.StructType")([]).to_arrow(),
}


def test_every_member_that_returns_an_object_of_arro3_is_compared() -> None:
    """Python's members say so in their annotation; those written in Rust are all called `to_arrow`."""
    classes = {name for name, kind in vars(arro3.core).items() if inspect.isclass(kind)}
    found = {
        member.full_name
        for member in members()
        if member.name.endswith(".to_arrow")
        or (inspect.isfunction(member.theirs) and member.theirs.__annotations__.get("return") in classes)
    }
    assert found == set(RESULTS)


@pytest.fixture
def fed(anywhere: Both) -> Both:
    anywhere.seed(
        pa.table({"id": [1, 2, 3], "text": ["a", None, "c"], "kind": ["x", "x", "y"]}),
        partition_by=["kind"],
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    return anywhere


def test_results_are_of_arro3s_classes(fed: Both) -> None:
    for name, call in RESULTS.items():
        theirs, ours = (call(library) for library in fed.libraries)
        assert type(ours) is getattr(arro3.core, type(theirs).__name__), name
        assert set(dir(theirs)) <= set(dir(ours)), name  # theirs of a query is of a class built into `deltalake`


def test_streams_are_taken_by_whatever_reads_arrow(fed: Both) -> None:
    rows = [(1, "a", "x"), (2, None, "x"), (3, "c", "y")]
    table = fed.ours.table()
    stream = table.scan()  # noqa: F841  DuckDB finds it by its name
    assert sorted(duckdb.sql("from stream").fetchall()) == rows
    assert sorted(pl.DataFrame(table.scan()).rows()) == rows
    assert sorted(pa.table(table.scan()).column("text").to_pylist(), key=str) == [None, "a", "c"]
    batch = table.scan(["id"], "kind = 'y'").read_next_batch()
    assert batch.column("id").to_pylist() == [3]
    theirs = deltalake.DeltaTable(str(fed.ours.folder)).get_add_actions()
    assert sorted(table.get_add_actions().column("path").to_pylist()) == sorted(theirs.column("path").to_pylist())


def test_a_reader_says_what_failed(anywhere: Both) -> None:
    anywhere.seed({"id": [1]})
    for library in anywhere.libraries:
        reader = library.table().scan()
        (file,) = library.folder.glob("*.parquet")
        file.unlink()
        with pytest.raises(Exception, match=file.name) as raised:
            reader.read_all()
        assert type(raised.value) is Exception
