"""Processes die at every step and at random: what was acknowledged is there once, the rest whole or not at all."""

import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as UnmodifiedTable
from deltalake import write_deltalake

import deltalakedb as dl
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.fence import FEATURE
from tests.faults.conftest import Place
from tests.faults.processes import Ended, run, start
from tests.faults.reconcile import bring_level
from tests.faults.worker import rows
from tests.fixtures.sizes import sized

TABLE = "busy.events"
COMMIT_STEPS = ("commit.begun", "commit.locked", "commit.checked", "commit.written", "commit.committed")
MIRROR_STEPS = ("mirror.start", "mirror.json_temp", "mirror.json_linked", "mirror.marked", "mirror.crc_written")
CHECKPOINT_STEPS = ("mirror.checkpoint_written", "mirror.last_checkpoint_written")
RANDOM_KILLS = sized(15, 200)
LONGEST_LIFE = sized(0.3, 0.6)
"""Seconds until a process is killed."""
COMMITS = 4


def arguments(place: Place, **config: Any) -> dict[str, Any]:
    return {**asdict(place), "warehouse": str(place.warehouse), "config": config}


def location(place: Place) -> Path:
    return place.warehouse / "busy" / "events"


def check_level(place: Place, acknowledged: dict[tuple[str, int], int]) -> set[tuple[str, int]]:
    """After the reconciler: files and SQL are the same, no JSON is torn, acknowledged commits are there once."""
    bring_level(place)
    for path in location(place).glob("_delta_log/*.json"):
        for line in path.read_text().splitlines():
            json.loads(line)
    with dl.connect(place.catalog) as catalog:
        report = catalog.validate(TABLE)
        assert report.drift is None, report.drift
        assert report.sql_version == report.files_version
        history = catalog.history(TABLE)
    versions = [entry["version"] for entry in history]
    assert versions == list(range(len(versions) - 1, -1, -1))
    found = UnmodifiedTable(str(location(place))).to_pyarrow_table().to_pylist()
    commits = {(row["writer"], row["number"]) for row in found}
    assert len(found) == 3 * len(commits), "a commit is there in part, or twice"
    assert acknowledged.keys() <= commits
    return commits


def acknowledged_by(ended: Ended, writer: str) -> dict[tuple[str, int], int]:
    return {(writer, line["acknowledged"]): line["version"] for line in ended.said if "acknowledged" in line}


@pytest.mark.parametrize("step", [*COMMIT_STEPS, *MIRROR_STEPS])
def test_a_process_that_dies_at_a_step_loses_nothing_it_acknowledged(place: Place, step: str) -> None:
    run("create", place=arguments(place), table=TABLE)
    # Marks are written for several commits at once, at the latest when the catalog is closed.
    # On Postgres the second append of a process is one call of the database, with no step to die at within.
    in_one_call = place.engine == "postgres" and step in COMMIT_STEPS[1:4]
    times = 1 if step == "mirror.marked" or in_one_call else 2
    ended = start(
        "append", kill_at=f"{step}#{times}", place=arguments(place), table=TABLE, writer="victim", count=COMMITS
    ).wait()
    assert (ended.code, ended.all_of("killed_at")) == (-9, [step])
    acknowledged = acknowledged_by(ended, "victim")
    committed = check_level(place, acknowledged)
    # In doubt is at most the one commit that was under way.
    assert committed - acknowledged.keys() <= {("victim", len(acknowledged))}
    if step in COMMIT_STEPS[:4]:
        assert committed == acknowledged.keys()
    after = run("append", place=arguments(place), table=TABLE, writer="next", count=2)
    assert len(check_level(place, acknowledged | acknowledged_by(after, "next"))) == len(committed) + 2


@pytest.mark.parametrize("step", CHECKPOINT_STEPS)
def test_a_process_that_dies_over_a_checkpoint_leaves_a_readable_log(place: Place, step: str) -> None:
    run("create", place=arguments(place), table=TABLE, properties={"delta.checkpointInterval": "3"})
    ended = start("append", kill_at=step, place=arguments(place), table=TABLE, writer="victim", count=40).wait()
    assert ended.code == -9, ended.errors
    acknowledged = acknowledged_by(ended, "victim")
    check_level(place, acknowledged)
    run("append", place=arguments(place), table=TABLE, writer="next", count=4)
    bring_level(place)
    listing = FileTxnLogReader(location(place)).listing()
    assert listing.checkpoints
    unmodified = UnmodifiedTable(str(location(place)))
    assert unmodified.version() == listing.latest_version


def test_processes_that_die_at_random_times_lose_nothing(place: Place) -> None:
    choices = random.Random(20261115)
    run("create", place=arguments(place), table=TABLE, properties={"delta.checkpointInterval": "5"})
    acknowledged: dict[tuple[str, int], int] = {}
    for number in range(RANDOM_KILLS):
        writer = f"victim-{number}"
        worker = start("append", place=arguments(place), table=TABLE, writer=writer, count=1000)
        time.sleep(choices.uniform(0.05, LONGEST_LIFE))
        worker.kill()
        ended = worker.wait()
        assert ended.code == -9, ended.errors
        acknowledged |= acknowledged_by(ended, writer)
        if number % 4 == 3 and number + 1 < RANDOM_KILLS:
            check_level(place, acknowledged)
    committed = check_level(place, acknowledged)
    assert len(set(acknowledged.values())) == len(acknowledged)
    assert len(committed - acknowledged.keys()) <= RANDOM_KILLS


@pytest.mark.parametrize("step", ["promote.followed", "promote.fence_put", "promote.imported"])
def test_a_promote_that_dies_is_finished_by_the_next_one(place: Place, step: str) -> None:
    write_deltalake(str(location(place)), rows("before", 0))
    with dl.connect(place.catalog) as catalog:
        catalog.attach_table(str(location(place)), TABLE)
    ended = start("promote", kill_at=step, place=arguments(place), table=TABLE).wait()
    assert ended.code == -9, ended.errors
    run("promote", place=arguments(place), table=TABLE)
    assert FEATURE in (UnmodifiedTable(str(location(place))).protocol().writer_features or [])
    after = run("append", place=arguments(place), table=TABLE, writer="after", count=2)
    committed = check_level(place, acknowledged_by(after, "after"))
    assert committed == {("before", 0), ("after", 0), ("after", 1)}
    # The fence is there once, whoever put it.
    assert UnmodifiedTable(str(location(place))).version() == 3


@pytest.mark.parametrize("step", ["detach.committed", "detach.mirrored", "detach.done"])
def test_a_detach_that_dies_is_finished(place: Place, step: str) -> None:
    run("create", place=arguments(place), table=TABLE)
    run("append", place=arguments(place), table=TABLE, writer="before", count=2)
    ended = start("detach", kill_at=step, place=arguments(place), table=TABLE).wait()
    assert ended.code == -9, ended.errors
    bring_level(place)
    with dl.connect(place.catalog) as catalog:
        (info,) = catalog.table_infos()
        assert info.mode == "detached"
    assert FEATURE not in (UnmodifiedTable(str(location(place))).protocol().writer_features or [])
    write_deltalake(str(location(place)), rows("after", 0), mode="append")
    found = UnmodifiedTable(str(location(place))).to_pyarrow_table().to_pylist()
    assert {(row["writer"], row["number"]) for row in found} == {("before", 0), ("before", 1), ("after", 0)}
