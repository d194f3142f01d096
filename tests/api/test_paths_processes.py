"""Plain paths under many processes, and under processes that are killed: no version is lost, none is half there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.operations.target import Done, Target
from deltalakedb.runtime import steps
from tests.api.plain import append, begin, data_files, our_ids, rows, run, their_ids
from tests.fixtures.s3 import S3
from tests.fixtures.sizes import sized

WRITERS = 8
APPENDS = sized(5, 10)
ON_S3 = sized(2, 10)
"""Each process's; the S3 of the tests takes its time for every request."""
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])  # loaded once, not once for each process


def _append_many(place: str, options: Mapping[str, str] | None, writer: int, appends: int) -> None:
    for number in range(appends):
        run(place, append(rows(writer * 100 + number)), options)


def _race(place: str, options: Mapping[str, str] | None, appends: int) -> None:
    begin(place, rows(-1), options)
    writers = [
        PROCESSES.Process(target=_append_many, args=(place, options, number, appends)) for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(180)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    expected = sorted([-1, *(writer * 100 + number for writer in range(WRITERS) for number in range(appends))])
    assert our_ids(place, options) == their_ids(place, options) == expected
    table = dl.DeltaTable(place, storage_options=options)
    assert table.version() == WRITERS * appends
    assert [entry["version"] for entry in table.history()] == list(range(WRITERS * appends, -1, -1))
    assert len({entry["txnId"] for entry in table.history()}) == WRITERS * appends + 1


def test_eight_processes_append_to_one_folder_and_nothing_is_lost(tmp_path: Path) -> None:
    _race(str(tmp_path / "t"), None, APPENDS)


def test_eight_processes_append_to_one_place_on_s3_and_nothing_is_lost(s3: S3) -> None:
    _race(s3.uri("t"), s3.storage_options, ON_S3)


def _die_at(place: str, step: str) -> None:
    def die(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(target: Target) -> Done:
        done = append(rows(9))(target)
        die("data_written")
        return done

    steps.observe(die)
    run(place, dying)


KILLS = {
    "data_written": False,
    "files.commit_begun": False,
    "mirror.json_temp": False,
    "mirror.json_linked": True,
    "files.committed": True,
    "files.checkpoint_written": True,
}
"""Where the process dies, and whether the commit has happened by then."""


@pytest.mark.parametrize(("step", "committed"), KILLS.items(), ids=KILLS)
def test_a_process_killed_in_the_middle_leaves_the_old_version_or_the_new_one(
    tmp_path: Path, step: str, committed: bool
) -> None:
    place = tmp_path / "t"
    begin(place, rows(1), properties={"delta.checkpointInterval": "2"})
    writer = PROCESSES.Process(target=_die_at, args=(str(place), step))
    writer.start()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    expected = [1, 9] if committed else [1]
    assert our_ids(place) == their_ids(place) == expected
    assert dl.DeltaTable(place).version() == int(committed)
    assert len(data_files(place)) == 2  # what was not committed only takes room
    run(place, append(rows(2)))
    deltalake.write_deltalake(place, rows(3), mode="append")
    assert our_ids(place) == their_ids(place) == sorted([*expected, 2, 3])
