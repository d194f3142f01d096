"""Table features."""

from __future__ import annotations

import pytest

from deltalakedb.exceptions import DeltaProtocolError, UnsupportedFeatureError
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from deltalakedb.log.protocol.features import (
    READER_FEATURES,
    WRITER_FEATURES,
    check_readable,
    check_writable,
    data_writable,
    is_enabled,
    reader_features,
    writer_features,
)
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType, VariantType

LONG = PrimitiveType("long")


@pytest.mark.parametrize(
    "feature",
    [
        "catalogManaged",
        "catalogOwned-preview",
        "redirectReaderWriter-preview",
        "adaptiveMetadata-preview",
        "geospatial",
        "geospatial-dev",
        "of the future",
    ],
)
def test_an_unsupported_reader_feature_is_refused_by_name(feature: str) -> None:
    protocol = Protocol(3, 7, ("deletionVectors", feature), ("deletionVectors", feature))
    with pytest.raises(UnsupportedFeatureError, match="sales.orders") as raised:
        check_readable(protocol, "sales.orders")
    assert raised.value.features == (feature,)
    assert isinstance(raised.value, DeltaProtocolError)


def test_a_catalog_managed_table_says_where_to_go() -> None:
    with pytest.raises(UnsupportedFeatureError, match="through that catalog"):
        check_readable(Protocol(3, 7, ("catalogManaged",), ("catalogManaged",)), "t")


def test_every_known_reader_feature_can_be_read() -> None:
    features = tuple(sorted(READER_FEATURES))
    check_readable(Protocol(3, 7, features, features), "t")
    check_readable(Protocol(1, 2), "t")
    check_readable(Protocol(2, 5), "t")


def test_writer_features_never_stop_a_reader() -> None:
    check_readable(Protocol(1, 7, None, (*sorted(WRITER_FEATURES), "of the future")), "t")


def test_a_newer_reader_version_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="reader version 4"):
        check_readable(Protocol(4, 7, (), ()), "t")


def test_an_unsupported_writer_feature_is_refused_by_name() -> None:
    check_writable(Protocol(1, 2), "t")
    check_writable(Protocol(3, 7, ("timestampNtz",), ("timestampNtz", "appendOnly")), "t")
    with pytest.raises(UnsupportedFeatureError, match="cannot be written.*of the future"):
        check_writable(Protocol(1, 7, None, ("appendOnly", "of the future")), "t")
    with pytest.raises(UnsupportedFeatureError, match="writer version 8"):
        check_writable(Protocol(1, 8), "t")


def test_legacy_versions_stand_for_their_features() -> None:
    assert reader_features(Protocol(1, 1)) == set()
    assert reader_features(Protocol(2, 5)) == {"columnMapping"}
    assert writer_features(Protocol(1, 4)) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
    }
    assert writer_features(Protocol(1, 7, None, ("rowTracking",))) == {"rowTracking"}


def test_a_boolean_property_is_on_only_when_it_says_true() -> None:
    assert is_enabled({"delta.x": "TRUE"}, "delta.x")
    assert not is_enabled({"delta.x": None}, "delta.x")
    assert not is_enabled({}, "delta.x")


@pytest.mark.parametrize(
    "feature",
    sorted(WRITER_FEATURES - {"coordinatedCommits-preview", "redirectWriterOnly-preview"}),
)
def test_what_a_commit_of_finished_actions_can_keep_true_is_writable(feature: str) -> None:
    check_writable(Protocol(3, 7, (feature,) if feature in READER_FEATURES else (), (feature,)), "t")


@pytest.mark.parametrize(
    ("feature", "hint"),
    [
        ("coordinatedCommits-preview", "Another commit coordinator decides"),
        ("redirectWriterOnly-preview", "write there"),
        ("deltalakedb", "the fence is not part of a table's own protocol"),
    ],
)
def test_what_no_commit_of_ours_may_touch_is_refused_with_a_way_out(feature: str, hint: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{feature}.*{hint}"):
        check_writable(Protocol(1, 7, None, (feature,)), "t")


def metadata(*fields: StructField, **configuration: str) -> Metadata:
    named = {key.replace("_", "."): value for key, value in configuration.items()}
    return Metadata("id", Format(), StructType((StructField("a", LONG), *fields)).to_json(), (), named)


def test_our_data_plane_writes_tables_that_list_features_they_do_not_use() -> None:
    data_writable(Protocol(1, 6), metadata(), "t")
    data_writable(Protocol(2, 7, None, ("columnMapping", "checkConstraints")), metadata(delta_appendOnly="true"), "t")
    changes = metadata(StructField("b", LONG, nullable=False), delta_enableChangeDataFeed="true")
    data_writable(Protocol(1, 4), changes, "t")


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (metadata(delta_constraints_c="a > 0"), "a check constraint.*delta.constraints.c"),
        (metadata(StructField("b", LONG, metadata={"delta.invariants": "{}"})), "an invariant.*column b"),
        (metadata(StructField("b", LONG, metadata={"delta.generationExpression": "a"})), "a generated column"),
        (metadata(StructField("b", LONG, metadata={"delta.identity.start": 1})), "an identity column"),
        (metadata(StructField("b", LONG, metadata={"CURRENT_DEFAULT": "1"})), "a column default"),
        (metadata(StructField("b", VariantType())), "a variant column"),
        (metadata(delta_enableIcebergCompatV2="true"), "Iceberg"),
    ],
)
def test_our_data_plane_refuses_what_it_does_not_evaluate(table: Metadata, what: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"sales.orders.*{what}.*commit_actions"):
        data_writable(Protocol(1, 6), table, "sales.orders")


def test_our_data_plane_does_not_put_partition_columns_into_files() -> None:
    with pytest.raises(UnsupportedFeatureError, match="materializePartitionColumns"):
        data_writable(Protocol(1, 7, None, ("materializePartitionColumns",)), metadata(), "t")
