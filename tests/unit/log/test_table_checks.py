"""What a proposed protocol and metaData must keep true, one sentence a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deltalakedb.exceptions import InvalidCommitError, SchemaMismatchError, UnsupportedFeatureError
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from deltalakedb.log.protocol.features import features_in_use
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
    parse_schema,
)
from tests.unit.log.test_checks import METADATA, PROTOCOL, VECTORS, check, refused, remove, with_features

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def table(*fields: StructField, by: tuple[str, ...] = (), **configuration: str) -> Metadata:
    return replace(
        METADATA,
        schema_string=StructType(fields).to_json(),
        partition_columns=by,
        configuration={name.replace("_", "."): value for name, value in configuration.items()},
    )


def field(name: str, data_type: DataType = LONG, nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, data_type, nullable, {key.replace("__", "."): value for key, value in metadata.items()})


def mapped(name: str, number: int | None, physical: str | None) -> StructField:
    told = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, LONG, metadata={key: value for key, value in told.items() if value is not None})


# ---- the protocol


@pytest.mark.parametrize(
    ("protocol", "why"),
    [
        (Protocol(0, 2), r"to \(0,2\)"),
        (Protocol(1, 2, (), None), "readerFeatures with version 1"),
        (Protocol(1, 2, None, ()), "writerFeatures with version 2"),
        (Protocol(1, 7), "writerFeatures with version 7"),
        (Protocol(3, 7, None, ()), "readerFeatures with version 3"),
        (Protocol(3, 5, (), None), r"to \(3,5\)"),
        (Protocol(1, 7, None, ("appendOnly", "appendOnly")), "a feature twice"),
        (Protocol(3, 7, ("timestampNtz",), ()), "asks readers for timestampNtz"),
        (Protocol(1, 7, None, ("deletionVectors",)), "asks writers for deletionVectors"),
        (Protocol(3, 7, (), ("deletionVectors",)), "asks writers for deletionVectors"),
        (Protocol(2, 7, None, ("appendOnly",)), "asks readers for columnMapping"),
        (with_features("rowTracking"), "rowTracking without domainMetadata"),
        (with_features("icebergCompatV2"), "icebergCompatV2 without columnMapping"),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(protocol: Protocol, why: str) -> None:
    refused(why, protocol)


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(1, 1),
        Protocol(1, 4),
        Protocol(2, 5),
        Protocol(2, 6),
        Protocol(2, 7, None, ("columnMapping",)),
        VECTORS,
        Protocol(3, 7, ("columnMapping", "v2Checkpoint"), ("columnMapping", "v2Checkpoint", "icebergCompatV2")),
        with_features("rowTracking", "domainMetadata", "inCommitTimestamp", "clustering"),
    ],
)
def test_a_protocol_in_order_passes(protocol: Protocol) -> None:
    check(protocol)


def test_a_protocol_nobody_here_can_write_is_refused() -> None:
    for protocol in (with_features("of the future"), Protocol(3, 7, ("catalogManaged",), ("catalogManaged",))):
        with pytest.raises(UnsupportedFeatureError):
            check(protocol)
    with pytest.raises(UnsupportedFeatureError, match="writer version 8"):
        check(Protocol(1, 8))


def test_the_fence_is_not_proposed_but_put_up_by_the_mirror() -> None:
    with pytest.raises(UnsupportedFeatureError, match="fence is not part of"):
        check(fence(PROTOCOL))


def test_a_feature_that_readers_were_told_of_stays() -> None:
    refused("drops the feature deletionVectors", Protocol(1, 2), protocol=VECTORS)
    check(Protocol(1, 2), protocol=with_features("appendOnly", "rowTracking", "domainMetadata"))


def test_an_engine_that_has_purged_a_feature_may_drop_it_and_end_the_files_of_its_vectors() -> None:
    check(Protocol(1, 2), protocol=VECTORS, drops_feature=True)
    vectors = "deletion_vector_24428311-bdc0-4119-8810-3811bf8ce243.bin"
    check(remove(vectors, data_change=False), protocol=VECTORS, is_live=lambda _: set())
    refused("not in the table", remove(vectors), protocol=VECTORS, is_live=lambda _: set())


# ---- metadata alone


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (replace(METADATA, id="other"), "changes metaData.id from id to other"),
        (replace(METADATA, format=Format("orc")), "the format orc"),
        (replace(METADATA, schema_string="not json"), "no readable schema"),
        (replace(METADATA, schema_string='"long"'), "no readable schema"),
        (table(field("a"), field("A", STRING)), "the column a more than once"),
        (table(field("s", StructType((field("b"), field("b"))))), "the column b more than once inside of s"),
        (table(field("l", ArrayType(StructType((field("b"), field("B")))))), "more than once inside of l.element"),
        (table(field("")), "a column without a name"),
        (table(field("a"), by=("b",)), "the partition column b, which is not in the schema"),
        (table(field("a"), by=("A",)), "the partition column A, which is not in the schema"),
        (table(field("a"), by=("a", "a")), "a partition column twice"),
        (table(field("a", ArrayType(LONG)), by=("a",)), "partitioned by a of type array<long>"),
        (table(field("a", PrimitiveType("interval"))), "the unknown type interval"),
        (table(field("m", MapType(STRING, PrimitiveType("geometry")))), "m.value of the unknown type geometry"),
        (table(field("a"), delta_appendOnly="yes"), "sets delta.appendOnly to 'yes'"),
        (table(field("a"), delta_columnMapping_mode="names"), "sets delta.columnMapping.mode to names"),
    ],
)
def test_metadata_that_no_reader_could_follow_is_refused(metadata: Metadata, why: str) -> None:
    refused(why, metadata)


def test_only_a_commit_that_replaces_the_table_gives_it_another_id() -> None:
    """Delta does so on REPLACE TABLE: streams that read the table before must not go on with the new one."""
    check(replace(METADATA, id="other"), replaces=True)
    check(replace(METADATA, id="other"), restores=True)  # one from before the replacement


def test_a_decimal_has_at_most_38_digits() -> None:
    for name in ("decimal(39,2)", "decimal(4,5)", "decimal(4,-1)"):
        text = METADATA.schema_string.replace('"long"', f'"{name}"')
        refused("38 digits", replace(METADATA, schema_string=text))


# ---- metadata under its protocol


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        (table(field("a"), delta_enableDeletionVectors="true"), "deletionVectors"),
        (table(field("a"), delta_enableChangeDataFeed="true"), "changeDataFeed"),
        (table(field("a"), delta_enableInCommitTimestamps="TRUE"), "inCommitTimestamp"),
        (table(field("a"), delta_enableRowTracking="true"), "rowTracking"),
        (table(field("a"), delta_enableTypeWidening="true"), "typeWidening"),
        (table(field("a"), delta_enableIcebergCompatV2="true"), "icebergCompatV2"),
        (table(field("a"), delta_checkpointPolicy="v2"), "v2Checkpoint"),
        (
            table(mapped("a", 1, "a"), delta_columnMapping_mode="name", delta_columnMapping_maxColumnId="1"),
            "columnMapping",
        ),
        (table(field("a"), delta_constraints_positive="a > 0"), "checkConstraints"),
        (table(field("a", PrimitiveType("timestamp_ntz"))), "timestampNtz"),
        (table(field("m", MapType(STRING, ArrayType(PrimitiveType("timestamp_ntz"))))), "timestampNtz"),
        (table(field("a", VariantType())), "variantType"),
        (table(field("a", delta__generationExpression="b")), "generatedColumns"),
        (table(field("a", delta__identity__start=1)), "identityColumns"),
        (table(field("a", CURRENT_DEFAULT="1")), "allowColumnDefaults"),
        (table(field("a", delta__typeChanges=[])), "typeWidening"),
        (table(field("s", StructType((field("a", delta__invariants="{}"),)))), "invariants"),
        (table(field("a"), delta_appendOnly="true"), "appendOnly"),
    ],
)
def test_metadata_uses_no_feature_that_the_protocol_does_not_list(metadata: Metadata, feature: str) -> None:
    assert feature in features_in_use(parse_schema(metadata.schema_string), metadata.configuration)
    refused(f"uses the feature {feature} .*which the protocol does not list", metadata, protocol=Protocol(1, 1))
    check(_listing(feature), metadata)


def _listing(feature: str) -> Protocol:
    needs = {"rowTracking": ("domainMetadata",), "icebergCompatV2": ("columnMapping",)}.get(feature, ())
    if feature in ("deletionVectors", "v2Checkpoint", "timestampNtz", "variantType", "typeWidening"):
        return Protocol(3, 7, (feature,), (feature,))
    return Protocol(2 if feature == "columnMapping" else 1, 7, None, (feature, *needs))


def test_columns_are_not_mapped_behind_the_backs_of_readers() -> None:
    metadata = table(mapped("a", 1, "x"), delta_columnMapping_mode="name", delta_columnMapping_maxColumnId="1")
    refused("does not list.*for readers too", with_features("columnMapping"), metadata)


def test_a_preview_of_a_feature_is_that_feature() -> None:
    for feature, metadata in (
        ("variantType", table(field("a", VariantType()))),
        ("typeWidening", table(field("a"), delta_enableTypeWidening="true")),
    ):
        check(Protocol(3, 7, (f"{feature}-preview",), (f"{feature}-preview",)), metadata)


def test_a_property_that_is_off_needs_nothing() -> None:
    check(table(field("a"), delta_enableDeletionVectors="false", delta_columnMapping_mode="none", a_b="c"))


def test_a_protocol_without_what_the_metadata_uses_is_refused_too() -> None:
    metadata = table(field("a"), delta_enableRowTracking="true")
    rich = with_features("rowTracking", "domainMetadata")
    refused("uses the feature rowTracking", with_features("domainMetadata"), protocol=rich, metadata=metadata)


def test_a_table_that_broke_a_rule_before_can_still_be_changed() -> None:
    odd = table(
        field("a"), field("A", PrimitiveType("interval")), delta_appendOnly="perhaps", delta_constraints_c="a > 0"
    )
    check(replace(odd, description="better"), protocol=Protocol(1, 1), metadata=odd)
    refused("more than once", replace(odd, schema_string=table(field("a"), field("A")).schema_string), metadata=odd)
    more = replace(odd, configuration={**odd.configuration, "delta.enableChangeDataFeed": "true"})
    refused("changeDataFeed", more, protocol=Protocol(1, 1), metadata=odd)


# ---- column mapping


@pytest.mark.parametrize(
    ("fields", "configuration", "why"),
    [
        ([mapped("a", None, "a")], {}, "without an id or a physical name"),
        ([mapped("a", 1, None)], {}, "without an id or a physical name"),
        ([mapped("a", 1, "a"), mapped("b", 1, "b")], {}, "the id 1, which another has"),
        ([mapped("a", 1, "x"), mapped("b", 2, "x")], {}, "the physical name x more than once"),
        ([mapped("a", 5, "a")], {"delta_columnMapping_maxColumnId": "4"}, "maxColumnId=4"),
        ([mapped("a", 5, "a")], {}, "maxColumnId=nothing"),
    ],
)
def test_mapped_columns_have_names_and_ids_of_their_own(
    fields: list[StructField], configuration: dict[str, Any], why: str
) -> None:
    metadata = table(*fields, delta_columnMapping_mode="name", **configuration)
    refused(why, metadata, protocol=Protocol(2, 5))


def test_column_mapping_is_turned_on_in_place_and_off_only_where_no_file_stays() -> None:
    plain, by_name, by_id = (
        table(mapped("a", 1, "a"), delta_columnMapping_mode=mode, delta_columnMapping_maxColumnId="1")
        for mode in ("none", "name", "id")
    )
    check(by_name, protocol=Protocol(2, 5), metadata=plain)
    check(by_name, protocol=Protocol(2, 5), metadata=by_name)
    for before, after in ((plain, by_id), (by_name, plain), (by_name, by_id), (by_id, by_name)):
        why = "changes column mapping from .* and keeps 1 files"
        refused(why, after, protocol=Protocol(2, 5), metadata=before, live_files=1)
        check(after, protocol=Protocol(2, 5), metadata=before, live_files=0)


# ---- files that stay


def test_files_that_stay_keep_their_partition_columns() -> None:
    changed = replace(METADATA, partition_columns=("day",))
    refused("changes the partition columns and keeps 2 files", changed, live_files=2)
    refused("keeps 1 files", changed, remove("a"), live_files=2)
    check(changed, remove("a"), remove("b"), live_files=2)
    check(changed, live_files=0)
    check(changed)


def test_files_that_stay_keep_their_types() -> None:
    before, after = table(field("a"), field("b")), table(field("a"), field("b", STRING))
    with pytest.raises(SchemaMismatchError, match="column b from long to string and keeps 1 files"):
        check(after, metadata=before, live_files=1)
    check(after, remove("a"), metadata=before, live_files=1)
    check(table(field("a"), field("b"), field("c", STRING)), metadata=before, live_files=1)
    inner = table(field("s", StructType((field("a"),))))
    with pytest.raises(SchemaMismatchError, match="column a from long to string"):
        check(table(field("s", StructType((field("a", STRING),)))), metadata=inner, live_files=1)
    check(table(field("s", StructType((field("a"), field("b"))))), metadata=inner, live_files=1)


def test_structs_inside_of_arrays_and_maps_may_gain_fields_while_files_stay() -> None:
    less, more = StructType((field("a"),)), StructType((field("a"), field("b")))
    for old, new in ((ArrayType(less), ArrayType(more)), (MapType(less, less), MapType(less, more))):
        check(table(field("l", new)), metadata=table(field("l", old)), live_files=1)
    texts = ArrayType(PrimitiveType("string"))
    with pytest.raises(SchemaMismatchError, match="column l from long to string"):
        check(table(field("l", texts)), metadata=table(field("l", ArrayType(PrimitiveType("long")))), live_files=1)


def test_a_widened_type_needs_no_rewrite_where_the_table_has_that_feature() -> None:
    changes = [{"fromType": "integer", "toType": "long"}]
    before, after = table(field("a", PrimitiveType("integer"))), table(field("a", delta__typeChanges=changes))
    widening = Protocol(3, 7, ("typeWidening",), ("typeWidening",))
    check(after, protocol=widening, metadata=before, live_files=3)
    with pytest.raises(SchemaMismatchError):
        check(table(field("a")), protocol=widening, metadata=before, live_files=3)


def test_row_tracking_is_not_turned_on_over_files_without_row_ids() -> None:
    tracked = table(field("a"), delta_enableRowTracking="true")
    protocol = with_features("rowTracking", "domainMetadata")
    with pytest.raises(InvalidCommitError, match="keeps 3 files without row ids"):
        check(protocol, tracked, live_files=3)
    check(protocol, tracked, live_files=0)
    check(tracked, protocol=protocol, live_files=3)
