"""Protocols that ask for no more than a table needs, and column mapping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.checks.commit_checks import check_commit
from deltalakedb.log.protocol.actions import Action, Metadata, Protocol
from deltalakedb.log.protocol.feature_needs import with_features
from deltalakedb.log.protocol.features import READER_FEATURES, every_field, reader_features, writer_features
from deltalakedb.log.schema.column_mapping import map_columns
from deltalakedb.log.schema.ddl import parse_ddl
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.operations.definition import new_table, with_columns, with_properties

FEATURES = ["columnMapping", "deletionVectors", "timestampNtz", "changeDataFeed", "rowTracking", "inCommitTimestamp"]
PROTOCOLS = [Protocol(1, 1), Protocol(1, 2), Protocol(1, 4), Protocol(2, 5), Protocol(1, 7, None, ("appendOnly",)),
             Protocol(3, 7, ("timestampNtz",), ("timestampNtz", "appendOnly"))]  # fmt: skip
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.columnMapping.mode": "name",
    "delta.appendOnly": "true",
    "delta.checkpointPolicy": "v2",
    "owner": "ann",
}


def made(schema: str, **properties: str) -> tuple[Protocol, Metadata]:
    return new_table(
        parse_ddl(schema), (), properties, table="t", name="t", description=None, created_ms=0
    )  # fmt: skip


@given(st.sampled_from(PROTOCOLS), st.sets(st.sampled_from(FEATURES)))
def test_a_raised_protocol_has_what_is_asked_for_and_all_it_had(protocol: Protocol, features: set[str]) -> None:
    raised = with_features(protocol, features)
    assert features <= writer_features(raised)
    assert features & READER_FEATURES <= reader_features(raised)
    assert writer_features(protocol) <= writer_features(raised)
    assert reader_features(protocol) <= reader_features(raised)
    assert (raised.reader_features is None) == (raised.min_reader_version < 3)
    assert (raised.writer_features is None) == (raised.min_writer_version < 7)
    assert with_features(raised, features) is raised, "asked again, nothing changes"
    if features <= writer_features(protocol) and features & READER_FEATURES <= reader_features(protocol):
        assert raised is protocol


@pytest.mark.parametrize(
    ("features", "raised"),
    [
        ({"checkConstraints"}, Protocol(1, 3)),
        ({"changeDataFeed"}, Protocol(1, 4)),
        ({"generatedColumns", "checkConstraints"}, Protocol(1, 4)),
        ({"columnMapping"}, Protocol(2, 5)),
        ({"identityColumns"}, Protocol(1, 6)),
    ],
)
def test_legacy_versions_go_as_far_as_they_can(features: set[str], raised: Protocol) -> None:
    assert with_features(Protocol(1, 2), features) == raised
    listing = with_features(Protocol(1, 7, None, ("appendOnly",)), features)
    assert listing.min_writer_version == 7, "where features are listed already, there is no way back"
    assert listing.min_reader_version == raised.min_reader_version, "readers that know no table features can stay"


def test_column_mapping_is_listed_for_readers_once_they_need_lists() -> None:
    both = with_features(with_features(Protocol(1, 2), {"columnMapping"}), {"deletionVectors"})
    assert (both.min_reader_version, both.reader_features) == (3, ("columnMapping", "deletionVectors"))


def test_what_a_legacy_version_stood_for_is_listed_if_any_version_used_it() -> None:
    """PROTOCOL.md, "Table Features for New and Existing Tables"."""
    metadata = [made("id long", **properties)[1] for properties in ({"delta.enableChangeDataFeed": "true"}, {})]
    ntz, legacy = {"timestampNtz"}, Protocol(1, 4)
    assert with_features(legacy, ntz, history=lambda: metadata).writer_features == ("changeDataFeed", "timestampNtz")
    assert with_features(legacy, ntz, history=lambda: metadata[1:]).writer_features == ("timestampNtz",)
    for unknown in (None, lambda: None):
        assert writer_features(with_features(legacy, ntz, history=unknown)) == writer_features(legacy) | ntz


def test_a_feature_in_preview_is_not_added_a_second_time() -> None:
    before = Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",))
    assert with_features(before, {"typeWidening"}) is before


def check(actions: list[Action], before: tuple[Protocol, Metadata] | None) -> None:
    """The same check that stands before every commit."""
    protocol = next((a for a in actions if isinstance(a, Protocol)), before[0] if before else None)
    metadata = next((a for a in actions if isinstance(a, Metadata)), before[1] if before else None)
    assert protocol is not None
    assert metadata is not None
    check_commit(actions, protocol=protocol, metadata=metadata, table="t", version=1, is_live=None)


@given(st.sets(st.sampled_from(sorted(PROPERTIES))), st.booleans())
def test_whatever_a_table_is_made_with_passes_the_check_of_commits(names: set[str], ntz: bool) -> None:
    schema = "id long, at timestamp_ntz" if ntz else "id long, s struct<a: long>"
    first = made(schema, **{name: PROPERTIES[name] for name in names})
    check(list(first), None)
    if not names:
        assert first[0] == (Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))
                            if ntz else Protocol(1, 2))  # fmt: skip


@given(st.sets(st.sampled_from(sorted(PROPERTIES)), min_size=1))
def test_whatever_is_set_later_passes_it_too(names: set[str]) -> None:
    first = made("id long, s struct<a: long>")
    actions = with_properties(*first, {name: PROPERTIES[name] for name in names}, table="t", has_files=False)
    check(actions, first)
    raised = next((a for a in actions if isinstance(a, Protocol)), first[0])
    changed = next(a for a in actions if isinstance(a, Metadata))
    check(with_columns(raised, changed, "note string, at timestamp_ntz", table="t"), (raised, changed))


def test_mapped_columns_get_ids_once_and_names_nobody_else_has() -> None:
    schema, configuration = map_columns(
        parse_ddl("a long, s struct<b: array<struct<c: long>>>"), {}, new_name=iter("pqrs").__next__
    )
    assert [item.id for _, item in every_field(schema)] == [1, 2, 3, 4]
    assert configuration["delta.columnMapping.maxColumnId"] == "4"
    again, kept = map_columns(schema, configuration, new_name=iter("tuvw").__next__)
    assert (again, kept) == (schema, configuration)
    _, metadata = made("a long", **{"delta.columnMapping.mode": "name"})
    actions = with_columns(Protocol(2, 7), metadata, "b long", table="t")
    wider = next(a for a in actions if isinstance(a, Metadata))
    ids = [item.id for item in parse_schema(wider.schema_string).fields]
    assert ids == [1, 2]
    physical = [item.physical_name for _, item in every_field(schema)]
    assert len(set(physical)) == 4


def test_a_mapping_of_a_table_with_files_keeps_the_names_in_them() -> None:
    first = made("id long")
    actions = with_properties(*first, {"delta.columnMapping.mode": "name"}, table="t", has_files=True)
    changed = next(a for a in actions if isinstance(a, Metadata))
    assert parse_schema(changed.schema_string).fields[0].physical_name == "id"


@pytest.mark.parametrize(
    "properties",
    [{"delta.feature.dance": "supported"}, {"delta.feature.deletionVectors": "maybe"}, {"delta.minWriterVersion": "8"},
     {"delta.minReaderVersion": "3"}, {"delta.minReaderVersion": "²"},
     {"": "x"}, {"delta.columnMapping.mode": "position"}],
)  # fmt: skip
def test_properties_that_mean_nothing_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        made("id long", **properties)
