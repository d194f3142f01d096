"""The rules of a table, judged on streams: what is filled in, what is refused, under column mapping too."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.exceptions import AppendOnlyError, CommitFailedError, DeltaError, InvalidCommitError, PredicateError
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from deltalakedb.log.schema.types import DataType, PrimitiveType, StructField, StructType
from deltalakedb.operations.rules import Rules, refuse_changed_rows

FEATURES = ("invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults", "appendOnly")
MODERN = Protocol(1, 7, None, FEATURES)
LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")


def field(name: str, kind: DataType = LONG, nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, kind, nullable, {key.replace("__", "."): value for key, value in metadata.items()})


def metadata(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        id="t",
        format=Format(),
        schema_string=StructType(fields).to_json(),
        partition_columns=(),
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
    )


def apply(found: Metadata, rows: dict[str, Any] | pa.Table, protocol: Protocol = MODERN) -> list[dict[str, Any]]:
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    kept: list[dict[str, Any]] = Rules.of(found, protocol, table="t").apply(table.to_reader()).read_all().to_pylist()
    return kept


def test_a_table_without_rules_lets_the_stream_pass() -> None:
    rules = Rules.of(metadata(field("id")), MODERN)
    reader = pa.table({"other": [1]}).to_reader()
    assert rules.is_empty
    assert rules.apply(reader) is reader


def test_a_default_fills_what_the_data_does_not_bring() -> None:
    found = metadata(field("id"), field("kind", TEXT, nullable=False, CURRENT_DEFAULT="'plain'"))
    assert apply(found, {"id": [1, 2]}) == [{"id": 1, "kind": "plain"}, {"id": 2, "kind": "plain"}]
    assert apply(found, {"id": [1], "kind": ["own"]}) == [{"id": 1, "kind": "own"}]


def test_a_rule_whose_feature_the_protocol_does_not_have_is_none() -> None:
    found = metadata(field("id"), field("kind", TEXT, CURRENT_DEFAULT="'plain'"), delta__constraints__c="id > 1")
    assert Rules.of(found, Protocol(1, 2)).is_empty
    assert len(Rules.of(found, Protocol(1, 3)).checks) == 1


def test_generated_columns_see_defaults_and_constraints_see_both() -> None:
    found = metadata(
        field("id", CURRENT_DEFAULT="20"),
        field("twice", PrimitiveType("integer"), nullable=False, delta__generationExpression="id * 2"),
        delta__constraints__c="twice < 50",
    )
    assert apply(found, {"id": [1]}) == [{"id": 1, "twice": 2}]
    assert apply(metadata(*_with_note(found), delta__constraints__c="twice < 50"), {"note": ["x"]}) == [
        {"id": 20, "twice": 40, "note": "x"}
    ]
    with pytest.raises(DeltaError, match="the constraint c"):
        apply(found, {"id": [30]})


def _with_note(found: Metadata) -> tuple[StructField, ...]:
    from deltalakedb.log.schema.types import parse_schema

    return (*parse_schema(found.schema_string).fields, field("note", TEXT))


def test_days_are_generated_from_moments_as_spark_writes_them() -> None:
    kinds = field("at", PrimitiveType("timestamp")), field("d", PrimitiveType("date"))
    found = metadata(kinds[0], field("d", kinds[1].type, delta__generationExpression="CAST(at AS DATE)"))
    rows = pa.table({"at": pa.array([86_400], pa.timestamp("s", "UTC"))})
    assert str(apply(found, rows)[0]["d"]) == "1970-01-02"


def test_an_invariant_of_a_field_inside_of_a_struct_is_judged() -> None:
    rule = json.dumps({"expression": {"expression": "part.size > 0"}})
    part = StructType((field("size", LONG, delta__invariants=rule),))
    found = metadata(field("id"), field("part", part))
    assert len(apply(found, {"id": [1], "part": [{"size": 1}]})) == 1
    with pytest.raises(DeltaError, match=r"column part\.size"):
        apply(found, {"id": [1], "part": [{"size": 0}]})


def test_expressions_name_columns_as_users_do_under_column_mapping() -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    found = metadata(
        StructField("id", LONG, True, mapped),
        StructField("twice", LONG, True, {**mapped, "delta.columnMapping.id": 2, "delta.generationExpression": "id*2"}),
        delta__columnMapping__mode="name",
    )
    assert apply(found, {"id": [4]}) == [{"id": 4, "twice": 8}]


def test_values_are_judged_as_the_table_has_them() -> None:
    found = metadata(field("id"), delta__constraints__c="id > 9")
    assert apply(found, {"id": ["10"]}) == [{"id": 10}]
    with pytest.raises(DeltaError, match="1 rows"):
        apply(found, {"id": ["10", "9"]})


def test_a_rule_that_cannot_be_read_is_named() -> None:
    with pytest.raises(PredicateError, match="nosuch"):
        apply(metadata(field("id"), delta__constraints__c="nosuch > 9"), {"id": [1]})
    with pytest.raises(DeltaError, match="invariant of column id"):
        apply(metadata(field("id", delta__invariants="no json")), {"id": [1]})


def test_rows_of_an_append_only_table_are_not_replaced() -> None:
    refuse_changed_rows(metadata(field("id")), "t")
    with pytest.raises(AppendOnlyError, match="append-only") as caught:
        refuse_changed_rows(metadata(field("id"), delta__appendOnly="true"), "t")
    assert isinstance(caught.value, CommitFailedError)
    assert isinstance(caught.value, InvalidCommitError)
