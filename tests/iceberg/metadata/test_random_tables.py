"""Random requests to random tables give what Iceberg's own Java makes of them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deltalakedb.iceberg.metadata.table_builder import apply_updates, render_metadata
from deltalakedb.iceberg.metadata.table_metadata import new_table_metadata, parse_table_metadata
from tests.fixtures.sizes import sized
from tests.iceberg.metadata.comparing import UUID, Outcome, commit_both, differs, kind_of, outcome_of
from tests.iceberg.metadata.judge import Judge, comparable
from tests.iceberg.metadata.random_schemas import Json, schemas, valid_schemas
from tests.iceberg.metadata.requests import (
    NEW_TABLE_PROPERTIES,
    PROPERTIES,
    column_ids,
    create_updates,
    orders,
    specs,
    table_requirements,
    table_updates,
)
from tests.iceberg.metadata.samples import sample_table
from tests.iceberg.metadata.spoiling import spoiled

pytestmark = pytest.mark.spark


def create_both(judge: Judge, schema: Json, spec: Json | None, order: Json | None, properties: Json) -> Outcome:
    """A new table, compared with Java's."""
    asked: Json = {"schema": schema, "properties": properties, "location": "s3://bucket/table/"}
    verdict = judge.ask("new-table", **asked, **{"partition-spec": spec, "write-order": order})
    now_ms = verdict.result["last-updated-ms"] if verdict.result else 0
    uuid = verdict.result["table-uuid"] if verdict.result else UUID
    ours = outcome_of(
        lambda: new_table_metadata(partition_spec=spec, write_order=order, table_uuid=uuid, now_ms=now_ms, **asked)
    )
    assert ours.error == kind_of(verdict), (verdict, ours)
    if ours.metadata is not None:
        assert comparable(json.loads(render_metadata(ours.metadata))) == comparable(verdict.result)
    return ours


@settings(max_examples=sized(60, 5000))
@given(data=st.data())
def test_new_tables_are_those_of_java(judge: Judge, data: st.DataObject) -> None:
    version = data.draw(st.integers(1, 3))
    schema = data.draw(schemas())
    ids = column_ids({"schemas": [schema]})
    properties = {**data.draw(PROPERTIES | NEW_TABLE_PROPERTIES), "format-version": str(version)}
    spec, order = data.draw(st.none() | specs(ids, version=version)), data.draw(st.none() | orders(ids))
    created = create_both(judge, schema, spec, order, properties)
    assert created.metadata is None or parse_table_metadata(render_metadata(created.metadata)) == created.metadata


@pytest.mark.parametrize("version", [1, 2, 3])
@settings(max_examples=sized(20, 1700))
@given(data=st.data())
def test_histories_of_a_table_are_those_of_java(judge: Judge, version: int, data: st.DataObject) -> None:
    properties = {**data.draw(PROPERTIES), "format-version": str(version)}
    metadata = create_both(judge, data.draw(valid_schemas()), None, None, properties).metadata
    assert metadata is not None
    created = commit_both(judge, None, create_updates(metadata), [{"type": "assert-create"}]).metadata
    assert created is not None
    assert created == {**metadata, "last-updated-ms": created["last-updated-ms"]}
    for _ in range(data.draw(st.integers(1, 8))):
        updates = data.draw(table_updates(metadata, int(time.time() * 1000)))
        ours = commit_both(judge, metadata, updates, data.draw(table_requirements(metadata)))
        metadata = ours.metadata or metadata
        assert parse_table_metadata(render_metadata(metadata)) == metadata


@settings(max_examples=sized(40, 5000))
@given(data=st.data())
def test_requests_with_a_mistake_are_taken_or_refused_as_by_java(judge: Judge, data: st.DataObject) -> None:
    table = dict(sample_table(data.draw(st.integers(1, 3))))
    updates = data.draw(spoiled(data.draw(table_updates(table, int(time.time() * 1000)))))
    assume(is_json(updates))
    verdict = judge.table(json.loads(render_metadata(table)), updates)
    now_ms = verdict.result["last-updated-ms"] if verdict.result else int(time.time() * 1000)
    ours = outcome_of(lambda: apply_updates(table, updates, now_ms=now_ms))
    if differs(verdict, ours):
        return
    assert bool(ours.error) == bool(verdict.error), (verdict, ours)
    if ours.metadata is not None:
        assert comparable(json.loads(render_metadata(ours.metadata))) == comparable(verdict.result)


def is_json(value: object) -> bool:
    """Whether Java can be asked: not with text that is not Unicode, and not with numbers that are none."""
    try:
        return bool(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except ValueError:
        return False
