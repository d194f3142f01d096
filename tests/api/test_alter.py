"""DeltaTable.alter does what `deltalake`'s does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.features import writer_features
from tests.api.both import Both, Library
from tests.api.test_members import FEATURES

ROWS = {"id": list(range(6)), "p": ["a", "b"] * 3}


def field(lib: Library, name: str, kind: str, **arguments: Any) -> Any:
    return lib.find("schema.Field")(name, lib.find("schema.PrimitiveType")(kind), **arguments)


def struct(lib: Library, name: str, *inner: str) -> Any:
    kind = lib.find("schema.StructType")([field(lib, one, "integer") for one in inner])
    return lib.find("schema.Field")(name, kind)


def test_columns_are_added_and_structs_grow(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.add_columns([field(lib, "n", "string"), struct(lib, "s", "a")]))
    both.same(lambda lib: lib.table().alter.add_columns(struct(lib, "s", "b")))
    both.same(lambda lib: lib.table().alter.add_columns(field(lib, "id", "long")))
    both.same(lambda lib: lib.table().alter.add_columns([]))
    both.same_schema()
    both.same_rows()
    both.same_history()


def test_a_column_cannot_become_another(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().alter.add_columns(field(lib, "id", "string")))
    both.fails(lambda lib: lib.table().alter.add_columns("n string"))
    both.same_version()


def test_constraints_come_and_go(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.add_constraint({"positive": "id >= 0"}))
    both.same(lambda lib: lib.table().metadata().configuration, exactly=True)
    both.same(lambda lib: lib.table().alter.add_constraint({"low": "id < 100", "named": "p is not null"}))
    both.fails(lambda lib: lib.write({"id": [-1], "p": ["a"]}, mode="append"))
    both.same(lambda lib: lib.table().alter.drop_constraint("positive"))
    both.same(lambda lib: lib.write({"id": [-1], "p": ["a"]}, mode="append"))
    both.same_rows()
    both.same_history()


def test_a_constraint_that_rows_break_is_refused(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().alter.add_constraint({"big": "id > 3"}))
    both.fails(lambda lib: lib.table().alter.add_constraint({"wrong": "nosuch > 3"}))
    both.fails(lambda lib: lib.table().alter.add_constraint({"wrong": "id >> > 3"}))
    both.fails(lambda lib: lib.table().alter.add_constraint({}))
    both.fails(lambda lib: lib.table().alter.drop_constraint("nosuch"))
    both.same(lambda lib: lib.table().alter.drop_constraint("nosuch", raise_if_not_exists=False))
    assert both.same_version() == 1


def test_rows_that_come_meanwhile_are_held_against_a_new_constraint(tmp_path: Path) -> None:
    cat = deltalakedb.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"))
    cat.create_table("s.t", "id long")
    with cat.begin() as tx:
        tx.alter("s.t").add_constraint({"positive": "id > 0"})
        deltalakedb.write_deltalake(cat.table("s.t"), pa.table({"id": [-1]}), mode="append")
        with pytest.raises(DeltaError, match="s.t"):
            tx.commit()
    assert not cat.table("s.t").metadata().configuration


def test_properties_are_set(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.set_table_properties({"delta.appendOnly": "true"}))
    both.same(lambda lib: lib.table().alter.set_table_properties({"mine": "x"}, raise_if_not_exists=False))
    both.same(lambda lib: lib.table().alter.set_table_properties({}))
    both.same(lambda lib: lib.table().metadata().configuration, exactly=True)
    both.same_history()


def test_properties_that_make_no_sense_are_refused(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().alter.set_table_properties({"mine": "x"}))
    both.fails(lambda lib: lib.table().alter.set_table_properties({"delta.appendOnly": True}))
    both.same_version()


def test_a_property_raises_the_protocol(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.set_table_properties({"delta.enableChangeDataFeed": "true"}))
    both.same(lambda lib: lib.table().alter.set_table_properties({"delta.enableDeletionVectors": "true"}))
    both.same(lambda lib: "deletionVectors" in lib.table().protocol().reader_features, exactly=True)
    assert sorted(both.ours.table().protocol().writer_features) == ["changeDataFeed", "deletionVectors"]
    both.same_rows()


def test_names_descriptions_and_metadata_of_columns(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.set_table_name("orders"))
    both.same(lambda lib: lib.table().alter.set_table_description("what was ordered"))
    both.same(lambda lib: lib.table().alter.set_column_metadata("id", {"comment": "its number"}))
    both.same(lambda lib: (lib.table().metadata().name, lib.table().metadata().description), exactly=True)
    both.same(lambda lib: lib.table().schema().fields[0].metadata, exactly=True)
    both.same_history()


def test_names_that_make_no_sense_are_refused(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().alter.set_table_name(""))
    both.fails(lambda lib: lib.table().alter.set_table_name("n" * 256))
    both.fails(lambda lib: lib.table().alter.set_table_description("d" * 4001))
    both.fails(lambda lib: lib.table().alter.set_column_metadata("nosuch", {"comment": "x"}))
    both.same_version()


def test_a_column_may_be_null_from_now_on(both: Both) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.string())])
    both.seed(pa.table({"id": [1], "p": ["a"]}, schema=schema))
    both.same(lambda lib: lib.table().alter.drop_column_not_null("id"))
    both.fails(lambda lib: lib.table().alter.drop_column_not_null("id"))
    both.fails(lambda lib: lib.table().alter.drop_column_not_null("nosuch"))
    both.same_schema()
    both.same_history()


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "TimestampNanos"])
def test_features_are_added_to_the_protocol(on_paths: Both, name: str) -> None:
    both = on_paths
    both.seed(ROWS)

    def add(lib: Library, **arguments: Any) -> Any:
        return lib.table().alter.add_feature(getattr(lib.module.TableFeatures, name), **arguments)

    both.fails(add)
    both.same(lambda lib: add(lib, allow_protocol_versions_increase=True))
    theirs = both.theirs.table().protocol().writer_features
    # A version below 7 stands for features by itself: they are there without being listed.
    assert set(theirs) <= writer_features(both.ours.table()._snapshot.protocol)
    both.same_history()


def test_features_are_members_of_table_features(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().alter.add_feature([]))
    both.fails(lambda lib: lib.table().alter.add_feature("appendOnly"))


def test_arguments_by_position_are_deprecated(both: Both) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.add_columns([], None))
    both.same(lambda lib: lib.table().alter.drop_constraint("nosuch", False, None, None))
    both.fails(lambda lib: lib.table().alter.set_table_name("x", None, None, None))
