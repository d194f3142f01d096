"""The catalog's upkeep as bridged sessions meet it: the fence of a promote, and vacuums of both; on every engine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import ConfigError, FilesVacuumedError, VersionTakenError
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.places import Place
from deltalakedb.serve.problems import status_of
from deltalakedb.store import registry
from deltalakedb.store.registry import Head
from tests.conformance.lives import write_rows
from tests.conformance.test_bridged_log import PROTOCOL, add, info, lines, metadata, place_of
from tests.conformance.transacting import numbers, open_catalog

WEEK_MS = 604_800_000


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


@pytest.fixture
def log(catalog: Catalog) -> BridgedLog:
    return BridgedLog(catalog)


def head_of(catalog: Catalog, name: str) -> Head:
    with catalog.store.read() as conn:
        head = registry.read_head(conn, catalog.table(name)._sql().row.table_id)
    assert head is not None
    return head


def marks(catalog: Catalog) -> tuple[int, int]:
    head = head_of(catalog, "sales.orders")
    return head.vacuumed_version, head.vacuum_count


# -- the fence of a promote


@pytest.fixture
def follower(catalog: Catalog, log: BridgedLog, tmp_path: Path) -> Place:
    """A table of versions 0 to 2 that `deltalake` wrote, with a protocol that lists no features."""
    for number in range(3):
        write_rows(tmp_path / "t", number)
    assert deltalake.DeltaTable(tmp_path / "t").protocol().min_writer_version == 2
    catalog.attach_table(str(tmp_path / "t"), "sales.t")
    return place_of(log, f"/file{tmp_path}/t")


def served(log: BridgedLog, place: Place, version: int) -> list[dict[str, Any]]:
    text = log.read(place, None, version)
    assert text is not None
    (entry,) = [one for one in log.entries(place, None, version).entries if one.version == version]
    assert entry.size == len(text.data), "Spark reads as far as the listing says"
    return [json.loads(line) for line in text.data.splitlines()]


def test_the_fence_commit_is_served_without_its_protocol(
    catalog: Catalog, log: BridgedLog, follower: Place, tmp_path: Path
) -> None:
    catalog.promote_table("sales.t")
    (fence,) = served(log, follower, 3)
    assert fence["commitInfo"]["operation"] == "PROMOTE"
    assert any("protocol" in action for action in served(log, follower, 0))
    assert FEATURE in (deltalake.DeltaTable(tmp_path / "t").protocol().writer_features or ()), "the files have it"
    for version in (2, 3):
        checksum = log.checksum(follower, None, version)
        assert checksum is not None
        assert json.loads(checksum)["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert catalog.validate("sales.t").drift is None


def test_a_statement_that_began_before_the_promote_goes_on_after_it(
    catalog: Catalog, log: BridgedLog, follower: Place, tmp_path: Path
) -> None:
    """What Spark does: it offers version 3, reads who was faster, finds no clash and offers version 4."""
    catalog.promote_table("sales.t")
    with pytest.raises(VersionTakenError):
        log.commit(follower, None, 3, lines(info(), add("f.parquet")), str(uuid.uuid4()))
    assert not any("protocol" in action or "metaData" in action for action in served(log, follower, 3))
    place = place_of(log, f"/file{tmp_path}/t")
    log.commit(place, None, 4, lines(info(), add("f.parquet")), str(uuid.uuid4()))
    assert catalog.table("sales.t").version() == 4
    assert catalog.validate("sales.t").drift is None


def test_a_protocol_that_changes_something_is_served(catalog: Catalog, log: BridgedLog, follower: Place) -> None:
    catalog.promote_table("sales.t")
    catalog.set_properties("sales.t", {"delta.enableChangeDataFeed": "true"})
    assert any("protocol" in action for action in served(log, follower, 4))


def test_a_transaction_that_read_the_table_before_the_promote_commits_after_it(
    catalog: Catalog, follower: Place
) -> None:
    del follower
    tx = catalog.begin()
    assert tx.table("sales.t").count() > 0
    tx.table("sales.t").schema()
    tx.write("sales.notes", numbers(1), mode="append")
    catalog.promote_table("sales.t")
    assert tx.commit() == {"sales.notes": 0}


# -- vacuums


@pytest.fixture
def orders(log: BridgedLog, tmp_path: Path) -> str:
    """A table by Spark: version 1 adds f1, version 2 replaces it, a second ago, by f2."""
    path = f"/file{tmp_path}/lake/sales/orders"
    say(log, path, 0, info("CREATE TABLE"), PROTOCOL, metadata())
    say(log, path, 1, info(), add("f1.parquet"))
    gone = {"path": "f1.parquet", "deletionTimestamp": 1_700_000_000_000, "dataChange": True, "size": 10}
    say(log, path, 2, info(blind=False), {"remove": gone | {"partitionValues": {}}}, add("f2.parquet"))
    return path


def say(log: BridgedLog, path: str, version: int, *actions: dict[str, Any], token: str | None = None) -> None:
    log.commit(place_of(log, path), None, version, lines(*actions), token or str(uuid.uuid4()))


def start(**retention: Any) -> dict[str, Any]:
    parameters = {"retentionCheckEnabled": False, "defaultRetentionMillis": WEEK_MS, **retention}
    return info("VACUUM START", operationParameters=parameters)


def end(status: str = "COMPLETED") -> dict[str, Any]:
    return info("VACUUM END", operationParameters={"status": status})


def test_the_two_commits_of_a_vacuum_of_spark_set_the_watermark(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    say(log, orders, 3, start(specifiedRetentionMillis=0))
    assert marks(catalog) == (2, 1), "version 2 removed a file: what is older may lose it"
    say(log, orders, 4, end())
    assert marks(catalog) == (2, 2)


def test_a_vacuum_that_keeps_what_was_removed_lately_moves_nothing_but_the_count(
    catalog: Catalog, log: BridgedLog, orders: str
) -> None:
    ten_years_ms = 520 * WEEK_MS
    say(log, orders, 3, start(specifiedRetentionMillis=str(ten_years_ms)))
    assert marks(catalog) == (0, 1)
    say(log, orders, 4, end("FAILED"))
    assert marks(catalog) == (0, 2)


def test_where_a_vacuum_does_not_say_its_retention_everything_removed_may_go(
    catalog: Catalog, log: BridgedLog, orders: str
) -> None:
    say(log, orders, 3, info("VACUUM START", operationParameters={"defaultRetentionMillis": "a while"}))
    assert marks(catalog) == (2, 1)


def test_a_restore_of_python_is_refused_while_spark_vacuums(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    before = catalog.begin()
    before.restore("sales.orders", 1, ignore_missing_files=True)
    say(log, orders, 3, start(specifiedRetentionMillis=0))
    with pytest.raises(FilesVacuumedError, match="f1.parquet"):
        before.commit()
    with pytest.raises(FilesVacuumedError, match="Wait until the vacuum has ended"):
        catalog.table("sales.orders").restore(1, ignore_missing_files=True)
    say(log, orders, 4, end())
    catalog.table("sales.orders").restore(1, ignore_missing_files=True)


def test_a_restore_of_spark_is_refused_while_files_are_deleted(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    say(log, orders, 3, start(specifiedRetentionMillis=0))
    with pytest.raises(FilesVacuumedError, match="f1.parquet") as told:
        say(log, orders, 4, info("RESTORE", blind=False), add("f1.parquet"))
    assert status_of(told.value) == 422, "409 would send Spark to look for a version that nobody made"
    say(log, orders, 4, end())
    say(log, orders, 5, info("RESTORE", blind=False), add("f1.parquet"))
    assert catalog.table("sales.orders").version() == 5


def test_two_vacuums_of_spark_at_once_are_both_waited_for(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    say(log, orders, 3, start(specifiedRetentionMillis=0))
    say(log, orders, 4, start(specifiedRetentionMillis=0))
    say(log, orders, 5, end())
    assert marks(catalog) == (2, 3)
    say(log, orders, 6, end())
    assert marks(catalog) == (2, 4)


def test_a_start_that_comes_second_does_not_count_until_it_is_sent_again(
    catalog: Catalog, log: BridgedLog, orders: str
) -> None:
    say(log, orders, 3, info(), add("f3.parquet"))
    with pytest.raises(VersionTakenError):
        say(log, orders, 3, start(specifiedRetentionMillis=0))
    assert marks(catalog)[1] % 2 == 0
    say(log, orders, 4, start(specifiedRetentionMillis=0))
    assert marks(catalog)[1] % 2 == 1


def test_commits_that_are_sent_again_count_once(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    first, last = str(uuid.uuid4()), str(uuid.uuid4())
    for _ in range(2):
        say(log, orders, 3, start(specifiedRetentionMillis=0), token=first)
    assert marks(catalog) == (2, 1)
    for _ in range(2):
        say(log, orders, 4, end(), token=last)
    assert marks(catalog) == (2, 2)


def test_a_vacuum_is_no_part_of_a_transaction(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    tx = catalog.begin()
    with pytest.raises(ConfigError, match="VACUUM is no part of a transaction"):
        log.commit(place_of(log, orders, tx), tx, 3, lines(start()), str(uuid.uuid4()))
    tx.rollback()
    assert marks(catalog) == (0, 0)


def test_a_vacuum_of_spark_that_died_is_forgotten_after_a_day(catalog: Catalog, log: BridgedLog, orders: str) -> None:
    say(log, orders, 3, start(specifiedRetentionMillis=0))  # and no end of it
    with catalog.store.write() as conn:
        (dead,) = conn.all("select_vacuums", first_lease="vacuum:", after_lease="vacuum;")
        conn.run("renew_lease", lease=dead["lease"], holder=dead["holder"], until_ms=conn.now_ms() - 1)
    say(log, orders, 4, start(specifiedRetentionMillis=0))
    say(log, orders, 5, end())
    assert marks(catalog) == (2, 4)
