"""Table features."""

from __future__ import annotations

import pytest

from deltalakedb.exceptions import DeltaProtocolError, UnsupportedFeatureError
from deltalakedb.log.actions import Protocol
from deltalakedb.log.features import (
    READER_FEATURES,
    WRITER_FEATURES,
    check_readable,
    check_writable,
    is_enabled,
    reader_features,
    writer_features,
)


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
