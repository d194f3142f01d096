"""In-commit timestamps count from the version that turned them on, and only while they are on."""

import json

from deltalakedb.log.protocol.actions import Action, CommitInfo, Format, Metadata
from deltalakedb.log.protocol.completion import InCommitTimestamps, keeps_in_commit_timestamps

ON = {"delta.enableInCommitTimestamps": "true"}
FILE_MS = 1_000


def stamped(timestamp: object) -> CommitInfo:
    return CommitInfo(json.dumps({"inCommitTimestamp": timestamp}))


def metadata(**configuration: str) -> Metadata:
    return Metadata("id", Format(), "{}", (), {f"delta.{key}": value for key, value in configuration.items()})


def time_of(*actions: Action, before: dict[str, str] | None) -> int:
    return InCommitTimestamps(lambda: before).of(5, actions, FILE_MS)


def test_a_table_that_keeps_them_is_believed() -> None:
    assert time_of(stamped(7), before=ON) == 7


def test_a_table_that_does_not_is_not() -> None:
    assert time_of(stamped(7), before={}) == FILE_MS


def test_the_commit_that_turns_them_on_carries_one() -> None:
    assert time_of(stamped(7), metadata(enableInCommitTimestamps="true"), before={}) == 7


def test_the_commit_that_turns_them_off_does_not() -> None:
    assert time_of(stamped(7), metadata(enableInCommitTimestamps="false"), before=ON) == FILE_MS


def test_where_the_log_no_longer_says_a_timestamp_is_believed() -> None:
    assert time_of(stamped(7), before=None) == 7


def test_anything_but_a_whole_number_in_the_first_action_is_ignored() -> None:
    assert time_of(stamped("7"), before=ON) == FILE_MS
    assert time_of(metadata(enableInCommitTimestamps="true"), stamped(7), before=ON) == FILE_MS
    assert time_of(before=ON) == FILE_MS


def test_the_configuration_is_looked_up_once_and_only_when_it_matters() -> None:
    asked: list[int] = []

    def before() -> dict[str, str]:
        asked.append(1)
        return ON

    timestamps = InCommitTimestamps(before)
    assert timestamps.of(1, [CommitInfo("{}")], FILE_MS) == FILE_MS
    assert asked == []
    assert [timestamps.of(version, [stamped(version)], FILE_MS) for version in (2, 3)] == [2, 3]
    assert asked == [1]


def test_the_enablement_version_is_respected() -> None:
    configuration = ON | {"delta.inCommitTimestampEnablementVersion": "3"}
    assert [keeps_in_commit_timestamps(configuration, version) for version in (2, 3, 4)] == [False, True, True]
    assert keeps_in_commit_timestamps(ON, 0)
    assert not keeps_in_commit_timestamps({}, 9)
