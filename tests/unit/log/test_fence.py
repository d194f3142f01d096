"""The fence: what the mirror shows of a protocol, and what an import makes of it again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.log.protocol.commit import parse_action, render_action
from deltalakedb.log.protocol.features import reader_features, writer_features
from deltalakedb.log.protocol.fence import FEATURE, fence, unfence
from tests.unit.log.strategies import protocols

legal = st.one_of(
    st.builds(Protocol, st.sampled_from([1, 2]), st.integers(1, 6)),
    st.builds(
        Protocol,
        st.sampled_from([1, 2]),
        st.just(7),
        st.none(),
        st.lists(st.sampled_from(["appendOnly", "rowTracking", FEATURE]), unique=True).map(tuple),
    ),
    st.just(Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly"))),
)


@pytest.mark.parametrize(
    ("protocol", "fenced"),
    [
        (Protocol(1, 1), Protocol(1, 7, None, (FEATURE,))),
        (Protocol(1, 2), Protocol(1, 7, None, ("appendOnly", "invariants", FEATURE))),
        (
            Protocol(1, 4),
            Protocol(
                1,
                7,
                None,
                ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", FEATURE),
            ),
        ),
        (
            Protocol(1, 5),
            Protocol(
                1,
                7,
                None,
                ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", FEATURE),
            ),
        ),
        (
            Protocol(2, 5),
            Protocol(
                2,
                7,
                None,
                (
                    "appendOnly",
                    "invariants",
                    "checkConstraints",
                    "changeDataFeed",
                    "generatedColumns",
                    "columnMapping",
                    FEATURE,
                ),
            ),
        ),
        (
            Protocol(3, 7, ("timestampNtz",), ("timestampNtz", "appendOnly")),
            Protocol(3, 7, ("timestampNtz",), ("timestampNtz", "appendOnly", FEATURE)),
        ),
    ],
)
def test_the_fence_spells_out_what_a_legacy_version_implies_and_comes_last(
    protocol: Protocol, fenced: Protocol
) -> None:
    assert fence(protocol) == fenced


@given(legal)
def test_no_reader_is_asked_for_more_and_no_writer_for_less(protocol: Protocol) -> None:
    fenced = fence(protocol)
    assert (fenced.min_reader_version, fenced.reader_features) == (
        protocol.min_reader_version,
        protocol.reader_features,
    )
    assert reader_features(fenced) == reader_features(protocol)
    # A writer of version 5 knows mapped columns, which no table for readers of version 1 has.
    unused = {"columnMapping"} if protocol.min_reader_version < 2 else set()
    assert writer_features(fenced) == (writer_features(protocol) - unused) | {FEATURE}


@given(legal | protocols)
def test_a_fence_put_up_twice_is_one_fence(protocol: Protocol) -> None:
    assert fence(fence(protocol)) == fence(protocol)


@given(legal | protocols)
def test_a_fence_can_be_taken_off_and_put_up_again(protocol: Protocol) -> None:
    plain, was_there = unfence(fence(protocol))
    assert was_there
    assert unfence(plain) == (plain, False)
    assert fence(plain) == fence(protocol)


@given(legal)
def test_where_only_the_fence_came_the_protocol_stays_as_it_was_spelled(protocol: Protocol) -> None:
    plain, _ = unfence(protocol)
    assert unfence(fence(plain), plain) == (plain, True)
    assert unfence(plain, plain) == (plain, False)


@given(legal, legal)
def test_another_protocol_behind_the_fence_is_taken_as_it_is(protocol: Protocol, before: Protocol) -> None:
    found, _ = unfence(fence(protocol), before)
    assert fence(found) == fence(protocol)


@given(legal)
def test_taking_the_fence_off_changes_nothing_else(protocol: Protocol) -> None:
    plain, was_there = unfence(protocol)
    assert was_there == (FEATURE in (protocol.writer_features or ()))
    assert writer_features(plain) == writer_features(protocol) - {FEATURE}
    assert was_there or plain is protocol


def test_a_protocol_that_spelled_its_missing_features_as_null_is_fenced_in_json_too() -> None:
    line = '{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"readerFeatures":null,"writerFeatures":null,"x":1}}'
    protocol = parse_action(line, where="t")
    assert isinstance(protocol, Protocol)
    assert render_action(fence(protocol)) == (
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"readerFeatures":null,'
        '"writerFeatures":["appendOnly","invariants","deltalakedb"],"x":1}}'
    )
