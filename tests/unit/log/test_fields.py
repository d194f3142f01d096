"""The description of the actions' fields agrees with the dataclasses, with schema.sql and with the batches."""

import dataclasses

import pytest

from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.fields import ADD, DELETION_VECTOR, FORMAT, REMOVE, SPEC_OF, SPECS, Spec
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA
from deltalakedb.store.queries import SQL_FOLDER
from deltalakedb.store.rows import TABLES, row_schema

ALL = [*SPECS.values(), DELETION_VECTOR, FORMAT]


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_every_field_of_the_dataclass_is_described_in_its_order(spec: Spec) -> None:
    described = [*(field.attribute for field in spec.fields), "extra"]
    assert described == [field.name for field in dataclasses.fields(spec.build)]


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_field_has_a_column_of_its_table(kind: type) -> None:
    assert set(SPEC_OF[kind].columns) <= set(row_schema(TABLES[kind]).names)


def test_batches_have_the_columns_of_sql_with_their_types() -> None:
    for kind, schema in ((AddFile, FILES_SCHEMA), (RemoveFile, TOMBSTONES_SCHEMA)):
        table = row_schema(TABLES[kind])
        assert schema.names == list(SPEC_OF[kind].columns)
        assert [field.type for field in schema] == [table.field(name).type for name in schema.names]


def test_queries_do_not_list_the_columns_of_files_themselves() -> None:
    """A new field of `add` or `remove` is in every query that reads whole actions."""
    for file in (SQL_FOLDER / "queries").glob("*.sql"):
        text = file.read_text(encoding="utf-8")
        for spec in (ADD, REMOVE):
            assert spec.columns[-2] not in text, f"{file.name} names {spec.columns[-2]}"
