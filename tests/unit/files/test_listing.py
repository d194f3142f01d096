"""What the names in `_delta_log` mean, with no file read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import LogGapError, VersionNotFoundError
from deltalakedb.files.log_folder import CheckpointKind, JsonEntry, LogListing, Segment, commit_name, is_log_name

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def commits(*versions: int) -> list[str]:
    return [commit_name(version) for version in versions]


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def part(version: int, number: int, count: int) -> str:
    return f"{version:020d}.checkpoint.{number:010d}.{count:010d}.parquet"


def compacted(start: int, end: int) -> str:
    return f"{start:020d}.{end:020d}.compacted.json"


def segment(names: list[str], version: int, excluded: tuple[str, ...] = ()) -> Segment:
    return LogListing.of(names).segment(version, table="t", excluded=excluded)


def test_each_kind_of_name_is_recognised() -> None:
    v2 = f"{7:020d}.checkpoint.{UUID}.json"
    listing = LogListing.of([*commits(5, 6), checkpoint(5), part(6, 1, 2), part(6, 2, 2), v2, compacted(3, 6)])
    assert listing.commits == {5, 6}
    assert [(entry.version, entry.kind) for entry in listing.checkpoints] == [
        (7, CheckpointKind.V2),
        (6, CheckpointKind.MULTIPART),
        (5, CheckpointKind.CLASSIC),
    ]
    assert listing.compacted == {3: (6,)}
    assert listing.latest_version == 7


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        "0.json",
        "00000000000000000001.json.tmp",
        ".00000000000000000001.json.crc",
        "00000000000000000001.crc",
        "0000000000000000000١.json",  # an Arabic-Indic digit
        "99999999999999999999.json",  # beyond 64 bits
        "00000000000000000001.checkpoint.not-a-uuid.json",
        "00000000000000000005.00000000000000000005.compacted.json",
        "00000000000000000001.json\n",
        "",
    ],
)
def test_other_names_are_ignored(name: str) -> None:
    listing = LogListing.of([name])
    assert listing.latest_version is None
    assert not listing.compacted


def test_log_names_are_told_from_others() -> None:
    assert is_log_name(commit_name(3))
    assert is_log_name(part(3, 1, 9))
    assert not is_log_name("_last_checkpoint")


def test_an_incomplete_multi_part_checkpoint_is_ignored() -> None:
    names = [*commits(*range(5)), part(3, 1, 3), part(3, 3, 3), part(2, 1, 1)]
    assert [entry.version for entry in LogListing.of(names).checkpoints] == [2]


def test_two_multi_part_checkpoints_of_one_version_are_not_mixed() -> None:
    names = [part(4, 1, 2), part(4, 1, 3), part(4, 2, 3), part(4, 3, 3)]
    [entry] = LogListing.of(names).checkpoints
    assert entry.names == (part(4, 1, 3), part(4, 2, 3), part(4, 3, 3))


def test_a_segment_starts_at_the_newest_checkpoint_not_above_the_version() -> None:
    names = [*commits(*range(10)), checkpoint(2), checkpoint(5), checkpoint(9)]
    found = segment(names, 7)
    assert found.checkpoint is not None
    assert found.checkpoint.version == 5
    assert found.json == (JsonEntry(6, 6), JsonEntry(7, 7))


def test_a_single_file_is_preferred_among_checkpoints_of_one_version() -> None:
    names = [part(1, 1, 2), part(1, 2, 2), f"{1:020d}.checkpoint.{UUID}.parquet", checkpoint(1)]
    assert [entry.kind for entry in LogListing.of(names).checkpoints] == [
        CheckpointKind.CLASSIC,
        CheckpointKind.V2,
        CheckpointKind.MULTIPART,
    ]


def test_an_excluded_checkpoint_gives_way_to_an_older_one() -> None:
    names = [*commits(*range(6)), checkpoint(2), checkpoint(4)]
    found = segment(names, 5, excluded=(checkpoint(4),))
    assert found.checkpoint is not None
    assert (found.checkpoint.version, len(found.json)) == (2, 3)
    assert segment(names, 5, excluded=(checkpoint(4), checkpoint(2))).checkpoint is None


def test_log_compaction_is_used_where_it_fits_whole() -> None:
    names = [*commits(*range(10)), checkpoint(1), compacted(2, 4), compacted(2, 6), compacted(7, 20), compacted(0, 3)]
    assert segment(names, 8).json == (JsonEntry(2, 6), JsonEntry(7, 7), JsonEntry(8, 8))
    assert segment(names, 5).json == (JsonEntry(2, 4), JsonEntry(5, 5))
    assert segment(names, 5, excluded=(compacted(2, 4),)).json == tuple(JsonEntry(v, v) for v in range(2, 6))


def test_log_compaction_bridges_commits_that_are_gone() -> None:
    assert segment([*commits(0, 1, 5), compacted(2, 4)], 5).json[2] == JsonEntry(2, 4)


def test_a_gap_is_reported_with_the_missing_version() -> None:
    with pytest.raises(LogGapError, match="version 2 is missing") as caught:
        segment(commits(0, 1, 3), 3)
    assert caught.value.missing_version == 2


def test_a_gap_after_the_checkpoint_is_reported_whatever_lies_before_it() -> None:
    with pytest.raises(LogGapError) as caught:
        segment([*commits(0, 1, 2, 5), checkpoint(2)], 5)
    assert caught.value.missing_version == 3


def test_a_log_without_its_beginning_and_without_a_checkpoint_is_a_gap_at_zero() -> None:
    with pytest.raises(LogGapError) as caught:
        segment(commits(3, 4), 4)
    assert caught.value.missing_version == 0


def test_a_version_that_was_cleaned_up_is_not_found_and_the_oldest_is_named() -> None:
    with pytest.raises(VersionNotFoundError, match="cleaned up and starts at version 5"):
        segment([*commits(3, 4, 5, 6), checkpoint(5)], 4)


def test_a_version_beyond_the_end_is_not_found() -> None:
    with pytest.raises(VersionNotFoundError, match="ends at version 1"):
        segment(commits(0, 1), 2)
    with pytest.raises(VersionNotFoundError):
        segment(commits(0, 1), -1)


@pytest.mark.parametrize(
    ("names", "earliest"),
    [
        (commits(0, 1, 2), 0),
        ([*commits(0, 1, 2), checkpoint(2)], 0),
        ([*commits(3, 4, 5), checkpoint(4)], 4),
        ([*commits(5, 6), checkpoint(4)], 4),
        ([*commits(0, 1, 5, 6), checkpoint(4), checkpoint(6)], 4),
        ([checkpoint(9)], 9),
        ([*commits(0, 1, 2), compacted(3, 5), checkpoint(5), *commits(6)], 5),
    ],
)
def test_the_earliest_version_is_where_an_unbroken_history_begins(names: list[str], earliest: int) -> None:
    assert LogListing.of(names).earliest_version("t") == earliest


def test_there_is_no_earliest_version_when_the_latest_cannot_be_rebuilt() -> None:
    with pytest.raises(LogGapError) as caught:
        LogListing.of(commits(0, 2)).earliest_version("t")
    assert caught.value.missing_version == 1


@given(
    present=st.sets(st.integers(0, 12)),
    checkpoints=st.sets(st.integers(0, 12)),
    ranges=st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12))),
    version=st.integers(0, 12),
)
def test_a_segment_always_covers_every_version_once_from_its_checkpoint_on(
    present: set[int], checkpoints: set[int], ranges: set[tuple[int, int]], version: int
) -> None:
    names = [*commits(*present), *map(checkpoint, checkpoints), *(compacted(a, b) for a, b in ranges if a < b)]
    listing = LogListing.of(names)
    try:
        found = listing.segment(version, table="t")
    except (LogGapError, VersionNotFoundError):
        # Refused only if commits alone lead to the version from no checkpoint, nor from the beginning.
        bases = [base for base in (*checkpoints, -1) if base <= version]
        assert not any(all(v in present for v in range(base + 1, version + 1)) for base in bases)
        return
    base = found.checkpoint.version if found.checkpoint else -1
    covered = [v for entry in found.json for v in range(entry.start, entry.end + 1)]
    assert covered == list(range(base + 1, version + 1))
