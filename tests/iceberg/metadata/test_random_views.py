"""Random requests to random views give what Iceberg's own Java makes of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalakedb.iceberg.metadata.view_metadata import new_view_metadata, parse_view_metadata, render_view_metadata
from tests.fixtures.sizes import sized
from tests.iceberg.metadata.comparing import UUID, commit_both_views, kind_of, outcome_of
from tests.iceberg.metadata.judge import Judge, comparable_view
from tests.iceberg.metadata.requests import PROPERTIES
from tests.iceberg.metadata.view_requests import SCHEMAS, versions, view_requirements, view_updates

pytestmark = pytest.mark.spark


@settings(max_examples=sized(30, 2000))
@given(data=st.data())
def test_histories_of_a_view_are_those_of_java(judge: Judge, data: st.DataObject) -> None:
    asked = {
        "schema": data.draw(st.sampled_from(SCHEMAS)),
        "view-version": data.draw(versions([0])),
        "properties": data.draw(PROPERTIES),
    }
    verdict = judge.ask("new-view", **asked, location="s3://bucket/view")
    uuid = verdict.result["view-uuid"] if verdict.result else UUID
    now_ms = verdict.result["version-log"][-1]["timestamp-ms"] if verdict.result else 0
    created = outcome_of(
        lambda: new_view_metadata(request=asked, location="s3://bucket/view", view_uuid=uuid, now_ms=now_ms)
    )
    assert created.error == kind_of(verdict), (verdict, created)
    if created.metadata is None:
        return
    metadata = created.metadata
    assert comparable_view(json.loads(render_view_metadata(metadata))) == comparable_view(verdict.result)
    for _ in range(data.draw(st.integers(1, 10))):
        updates = data.draw(view_updates(metadata))
        ours = commit_both_views(judge, metadata, updates, data.draw(view_requirements(metadata)))
        metadata = ours.metadata or metadata
        assert parse_view_metadata(render_view_metadata(metadata)) == metadata
