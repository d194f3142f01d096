"""Whatever a client sends, it is taken, or refused with one of the two errors; nothing else is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalakedb.exceptions import BadIcebergRequestError
from deltalakedb.iceberg.metadata.requirements import check_requirements
from deltalakedb.iceberg.metadata.table_builder import apply_updates, render_metadata
from deltalakedb.iceberg.metadata.table_metadata import new_table_metadata, parse_table_metadata
from deltalakedb.iceberg.metadata.view_metadata import (
    apply_view_updates,
    check_view_requirements,
    parse_view_metadata,
    render_view_metadata,
)
from tests.fixtures.sizes import sized
from tests.iceberg.metadata.comparing import outcome_of
from tests.iceberg.metadata.requests import create_updates, table_requirements, table_updates
from tests.iceberg.metadata.samples import ORDER, SCHEMA, SPEC, START_MS, UUID, sample_table, sample_view
from tests.iceberg.metadata.spoiling import spoiled
from tests.iceberg.metadata.view_requests import view_requirements, view_updates

NOW_MS = START_MS + 1_000_000


@settings(max_examples=sized(100, 10_000))
@given(data=st.data())
def test_spoiled_requests_to_tables_are_refused_in_one_way(data: st.DataObject) -> None:
    table = dict(sample_table(data.draw(st.integers(1, 3))))
    base = data.draw(st.sampled_from([table, None]))
    plain = data.draw(table_updates(table, NOW_MS)) if base else create_updates(table)
    updates = data.draw(spoiled(plain))
    requirements = data.draw(spoiled(data.draw(table_requirements(table)))) if base else []

    def commit() -> dict[str, Any]:
        check_requirements(requirements, base)
        return apply_updates(base, updates, now_ms=NOW_MS, table_uuid=UUID)

    made = outcome_of(commit)
    assert made.metadata is None or parse_table_metadata(render_metadata(made.metadata)) == made.metadata
    assert made.metadata is not None or "\n" not in made.message


@settings(max_examples=sized(50, 10_000))
@given(data=st.data())
def test_spoiled_requests_to_views_are_refused_in_one_way(data: st.DataObject) -> None:
    view = dict(sample_view())
    updates = data.draw(spoiled(data.draw(view_updates(view))))
    requirements = data.draw(spoiled(data.draw(view_requirements(view))))

    def commit() -> dict[str, Any]:
        check_view_requirements(requirements, view)
        return apply_view_updates(view, updates, now_ms=NOW_MS)

    made = outcome_of(commit)
    assert made.metadata is None or parse_view_metadata(render_view_metadata(made.metadata)) == made.metadata


@settings(max_examples=sized(50, 10_000))
@given(data=st.data())
def test_spoiled_files_are_refused_in_one_way(data: st.DataObject) -> None:
    table = data.draw(spoiled(dict(sample_table(data.draw(st.integers(1, 3))))))
    parsed = outcome_of(lambda: parse_table_metadata(json.dumps(table)))
    assert parsed.metadata is None or parse_table_metadata(render_metadata(parsed.metadata)) == parsed.metadata
    view = data.draw(spoiled(dict(sample_view())))
    read = outcome_of(lambda: parse_view_metadata(json.dumps(view)))
    assert read.metadata is None or parse_view_metadata(render_view_metadata(read.metadata)) == read.metadata


@settings(max_examples=sized(50, 10_000))
@given(data=st.data())
def test_spoiled_new_tables_are_refused_in_one_way(data: st.DataObject) -> None:
    asked = data.draw(
        spoiled({"schema": SCHEMA, "partition_spec": SPEC, "write_order": ORDER, "properties": {"a": "b"}})
    )
    schema = asked.pop("schema", None)
    made = outcome_of(
        lambda: new_table_metadata(
            schema=schema, location="s3://bucket/table", table_uuid=UUID, now_ms=START_MS, **asked
        )
    )
    assert made.metadata is None or parse_table_metadata(render_metadata(made.metadata)) == made.metadata


def nested(depth: int) -> Any:
    value: Any = "int"
    for number in range(depth):
        value = {"type": "list", "element-id": 1000 + number, "element": value, "element-required": False}
    return value


@pytest.mark.parametrize("depth", [70, 90, 1000, 100_000])
def test_nesting_that_is_too_deep_is_refused(depth: int) -> None:
    column = {"id": 11, "name": "x", "required": False, "type": nested(depth)}
    update = {"action": "add-schema", "schema": {"type": "struct", "fields": [column]}}
    for updates in ([update], [{"action": "set-location", "location": "s3://x", "more": nested(depth * 3)}]):
        with pytest.raises(BadIcebergRequestError, match="deep"):
            apply_updates(sample_table(2), updates, now_ms=NOW_MS)
        with pytest.raises(BadIcebergRequestError, match="deep"):
            apply_view_updates(sample_view(), updates, now_ms=NOW_MS)


def test_nesting_that_is_deep_is_taken() -> None:
    column = {"id": 11, "name": "x", "required": False, "type": nested(60)}
    update = {"action": "add-schema", "schema": {"type": "struct", "fields": [column]}}
    table = apply_updates(sample_table(2), [update], now_ms=NOW_MS)
    assert parse_table_metadata(render_metadata(table)) == table


@pytest.mark.parametrize("wrong", [None, {}, {"action": "set-location"}, "x", 1, [None], [[]], ["x"]])
def test_requests_that_are_no_lists_of_objects_are_refused(wrong: Any) -> None:
    for refuse in (
        lambda: apply_updates(sample_table(2), wrong, now_ms=NOW_MS),
        lambda: apply_view_updates(sample_view(), wrong, now_ms=NOW_MS),
        lambda: check_requirements(wrong, sample_table(2)),
        lambda: check_view_requirements(wrong, sample_view()),
    ):
        with pytest.raises(BadIcebergRequestError):
            refuse()
