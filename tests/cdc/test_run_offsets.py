"""Where batches end, how ranges are shared out, and what tasks tell the driver: no server is needed to judge these."""

import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.cdc.control import Server
from deltalakedb.cdc.decode.messages import Relation, RelationColumn
from deltalakedb.cdc.decode.reading import Description, FileWritten, PartRead, TaskFailed, from_row, to_row
from deltalakedb.cdc.source.offsets import Offset, Pace, split_range, stretch_after
from deltalakedb.cdc.source.peek import RelationChanged, Stopped
from deltalakedb.exceptions import CaptureError, SlotLostError, SourceUnavailableError, WrongServerError
from deltalakedb.log.protocol.actions import AddFile

MB = 1 << 20


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_batch_ends_as_soon_as_it_is_full() -> None:
    clock = Clock()
    pace = Pace(10 * MB, 5.0, clock)
    pace.begin(100)
    assert pace.next_end(100 + 25 * MB) == 100 + 10 * MB
    assert pace.next_end(100 + 25 * MB) == 100 + 20 * MB, "a backlog is drained without a pause"
    assert pace.next_end(100 + 25 * MB) == 100 + 20 * MB, "the rest waits for its window"
    clock.now = 5.0
    assert pace.next_end(100 + 25 * MB) == 100 + 25 * MB


def test_a_batch_that_is_not_full_ends_with_its_window_and_an_empty_one_never() -> None:
    clock = Clock()
    pace = Pace(10 * MB, 2.0, clock)
    pace.begin(100)
    assert pace.next_end(150) == 150, "nothing was handed out before: no reason to wait"
    clock.now = 1.9
    assert pace.next_end(200) == 150
    clock.now = 2.0
    assert pace.next_end(200) == 200
    clock.now = 9.0
    assert pace.next_end(200) == 200
    assert pace.next_end(201) == 201, "the window was over long ago"


def test_a_stretched_batch_is_twice_as_large_each_time() -> None:
    pace = Pace(MB, 60.0, Clock())
    pace.begin(0)
    pace.next_end(0)
    assert pace.next_end(100 * MB, stretch=3) == 8 * MB
    assert pace.next_end(100 * MB, stretch=0) == 9 * MB


def test_log_that_holds_little_makes_larger_ranges_up_to_eight_batches() -> None:
    # Pages of 8 KB that 100 bytes of changes came with: a batch of it would hold next to nothing.
    sizes, stretch = [], 0
    for _ in range(4):
        size = 64 * MB << stretch
        sizes.append(size // MB)
        stretch = stretch_after(stretch, size, size // 80, 64 * MB)
    assert sizes == [64, 256, 512, 512]


def test_log_without_anything_makes_ranges_that_reach_the_end_of_a_huge_transaction() -> None:
    stretch = 0
    for times in range(1, 20):
        stretch = stretch_after(stretch, 64 * MB << stretch, 0, 64 * MB)
        assert stretch == min(times, 16)
    assert stretch_after(stretch, 64 * MB << stretch, 32 * MB << stretch, 64 * MB) == 0


def test_log_that_is_full_of_changes_and_what_was_left_of_it_make_no_range_larger() -> None:
    assert stretch_after(3, 64 * MB, 30 * MB, 64 * MB) == 0
    assert stretch_after(3, 64 * MB - 1, 0, 64 * MB) == 0, "less than a batch was all there was"


@given(
    stretch=st.integers(0, 16), log_bytes=st.integers(0, 1 << 40), share=st.floats(0, 1), batch=st.integers(1, 1 << 30)
)
def test_a_range_as_full_as_the_last_one_holds_no_more_than_a_batch(
    stretch: int, log_bytes: int, share: float, batch: int
) -> None:
    held = int(log_bytes * share)
    after = stretch_after(stretch, log_bytes, held, batch)
    assert 0 <= after <= 16
    if held and log_bytes >= batch:
        assert (batch << after) * held // log_bytes <= batch


def test_a_query_that_goes_on_from_a_checkpoint_takes_all_there_is_first() -> None:
    pace = Pace(MB, 60.0, Clock())
    assert pace.next_end(77 * MB) == 77 * MB
    assert pace.next_end(77 * MB + 1) == 77 * MB


@given(start=st.integers(0, 1 << 40), size=st.integers(0, 1 << 32), tasks=st.integers(1, 64))
def test_parts_of_a_range_are_all_of_it_and_do_not_overlap(start: int, size: int, tasks: int) -> None:
    parts = split_range(start, start + size, tasks)
    assert len(parts) <= tasks
    assert (parts == []) == (size == 0)
    if parts:
        assert parts[0][0] == start
        assert parts[-1][1] == start + size
        assert all(first < last for first, last in parts)
        assert all(one[1] == other[0] for one, other in itertools.pairwise(parts))


def test_a_small_range_is_read_by_one_task() -> None:
    assert split_range(0, 15 * MB, 8) == [(0, 15 * MB)]
    assert len(split_range(0, 64 * MB, 2)) == 2


def test_a_stretched_range_is_read_by_one_task_as_its_log_is_most_of_the_work() -> None:
    assert split_range(0, 128 * MB, 2, batch_bytes=64 * MB) == [(0, 128 * MB)]
    assert len(split_range(0, 64 * MB, 2, batch_bytes=64 * MB)) == 2


def test_an_offset_means_something_on_its_own_server_only() -> None:
    offset = Offset.of(0x1_0000_0010, Server("7", 1, "shop"))
    assert offset.to_value() == {"lsn": "1/10", "systemId": "7", "timeline": 1}
    assert Offset.from_value(offset.to_value()) == offset
    offset.check(Server("7", 1, "shop"))
    for other in (Server("8", 1, "shop"), Server("7", 2, "shop")):
        with pytest.raises(WrongServerError, match="1/10 of the server 7, timeline 1"):
            offset.check(other)


RELATION = Relation(16384, "public", "orders", "d", (RelationColumn("id", 20, -1, True),))


@pytest.mark.parametrize(
    "item",
    [
        FileWritten(
            "public.orders", AddFile("part-0.parquet", {}, 10, 5, True, stats='{"numRecords":3}'), {"insert": 3}
        ),
        RelationChanged("public.orders", RELATION, 77),
        Stopped("public.orders", "it has a year of 300000", 78),
        TaskFailed("SlotLostError", "the slot is gone"),
        PartRead(10, 20, 3, 4, 500, datetime(2026, 11, 16, 4, 5, 6, 789, tzinfo=UTC)),
        PartRead(10, 20),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_a_task_tells_arrives_as_it_was(item: Description) -> None:
    assert from_row(*to_row(item)) == item


def test_an_error_of_a_task_is_the_same_error_for_the_driver() -> None:
    for error in (SlotLostError("gone"), SourceUnavailableError("away"), CaptureError("other")):
        told = TaskFailed.of(error).to_error()
        assert type(told) is type(error)
        assert str(told) == str(error)
    assert "sesame" not in TaskFailed.of(CaptureError("password=sesame is wrong")).message
