"""Spark processes and endpoints that die at every step: sums are right at any moment, nothing is half there."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.serve.bridge.overlay import Leftovers
from deltalakedb.serve.server import Endpoint
from tests.faults import spark_driver
from tests.faults.conftest import FULL
from tests.faults.spark_driver import ACCOUNTS, SINKS, START
from tests.faults.spark_endpoint import TOKEN, ServedCatalog
from tests.fixtures.readers import Deltalake
from tests.spark.peer import Peer

TRANSFERS = 20 if FULL else 3
STAGING = ("bridge.begun", "bridge.staged#1", "bridge.recorded#3", "bridge.staged#2", "bridge.recorded#9")
COMMIT = ("bridge.prepared", "commit.begun", "commit.locked", "commit.checked", "commit.written", "commit.committed")
MIRROR = ("mirror.start", "mirror.json_linked")
ENDPOINT_KILLS = [*STAGING, *COMMIT, *MIRROR] * 4 if FULL else ["bridge.staged#2", "commit.committed"]
DRIVER_KILLS = 12 if FULL else 1
STREAM_KILLS = ["commit.committed#2", "bridge.staged#3", "commit.written#2", "commit.begun#1"] * 5
STREAM_KILLS = STREAM_KILLS if FULL else STREAM_KILLS[:3]
ROWS = 30
PAUSE_SECONDS = 0.0 if FULL else 0.5
"""Between two looks at the totals: those who change them need the processors as well."""
LONGEST_SECONDS = 900 if FULL else 300


class Bank:
    """Two tables of a catalog of their own, and who works on them."""

    def __init__(self, folder: Path) -> None:
        self.uri, self.lake = f"deltasql://sqlite/{folder}/catalog.db", folder / "lake"
        self.catalog = dl.connect(self.uri, warehouse=str(self.lake), serve_txn_timeout=3.0)

    def sums(self) -> list[int]:
        """Of what is committed, by SQL and by who reads the files."""
        self.bring_level()
        found = []
        for name in ACCOUNTS:
            table = self.catalog.table(name)
            by_sql = sum(table.to_pyarrow_table()["amount"].to_pylist())
            rows = Deltalake().latest(Path(table.table_uri.removeprefix("file://"))).rows
            assert sum(rows["amount"].to_pylist()) == by_sql
            found.append(by_sql)
        return found

    def bring_level(self) -> None:
        """As `dl mirror run` does: whoever died may have left the files behind."""
        assert self.catalog.mirror.flush(30)
        options = self.catalog.storage_options_of
        with Reconciler(self.catalog.store, config=self.catalog.config, options_of=options) as reconciler:
            assert [result.error for result in reconciler.once() if result.error] == []

    def check_level(self) -> None:
        self.bring_level()
        for name in self.catalog.tables():
            report = self.catalog.validate(name)
            assert report.drift is None, report.drift

    def folders(self) -> list[Path]:
        """What transactions keep beside the tables."""
        return list(self.lake.glob("*/*/_dldb/txn-*"))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    made = Bank(tmp_path_factory.mktemp("bank"))
    with made.catalog:
        yield made


@pytest.fixture(scope="module")
def served(bank: Bank) -> Iterator[Endpoint]:
    """The endpoint that drivers share; it waits three seconds for a sign of life."""
    with Endpoint(bank.catalog, token=TOKEN) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def accounts(spark: SparkSession, served: Endpoint) -> SparkSession:
    """A session of the shared Spark on the bank's catalog, whose tables are there."""
    assert spark.version
    session = dls.session(endpoint=served.url, token=TOKEN)
    spark_driver.open_accounts(session)
    return session


def start_driver(folder: Path, served: Endpoint) -> Peer:
    peer = Peer(folder)
    peer.tell(
        "import deltalakedb.spark as dls\n"
        "from tests.faults import spark_driver\n"
        f"spark = dls.session(endpoint={served.url!r}, token={TOKEN!r}, **sessions._settings)"
    )
    return peer


def kill(peer: Peer) -> None:
    """The driver and its JVM go at once."""
    peer._process.send_signal(signal.SIGKILL)
    peer._process.wait()
    peer.close()


@pytest.mark.slow
def test_transfers_by_two_processes_never_show_a_wrong_total(
    bank: Bank, served: Endpoint, accounts: SparkSession, tmp_path: Path
) -> None:
    peers = [start_driver(tmp_path / f"peer{number}", served) for number in range(2)]
    try:
        for peer in peers:
            peer.answer()
        before = bank.catalog.table(ACCOUNTS[0]).version()
        for seed, peer in enumerate(peers):
            peer.tell(f"answer = spark_driver.transfer(spark, {seed + 1}, {TRANSFERS})")
        seen = set()
        deadline = time.monotonic() + LONGEST_SECONDS
        while bank.catalog.table(ACCOUNTS[0]).version() < before + 2 * TRANSFERS and time.monotonic() < deadline:
            totals = spark_driver.balances(accounts)
            seen.add(tuple(totals))
            assert sum(totals) == 2 * START, totals
            time.sleep(PAUSE_SECONDS)
        ended = [peer.answer() for peer in peers]
        assert [one["done"] for one in ended] == [TRANSFERS] * 2
        assert len(seen) > 1, "nothing moved while the totals were read"
        assert sum(bank.sums()) == 2 * START
        assert bank.sums()[0] < START
        bank.check_level()
        assert bank.folders() == []
        _check_dead_drivers(bank, served, accounts, peers, tmp_path)
    finally:
        for peer in peers:
            peer.close()


def _check_dead_drivers(
    bank: Bank, served: Endpoint, accounts: SparkSession, peers: list[Peer], tmp_path: Path
) -> None:
    """A driver is killed with a transaction open: the endpoint ends it, and what it left is gone."""
    for number in range(DRIVER_KILLS):
        peer = peers.pop() if peers else start_driver(tmp_path / f"victim{number}", served)
        if number >= 2:
            peer.answer()
        files = {path for path in bank.lake.rglob("*.parquet") if "_dldb" not in path.parts}
        before, fresh = bank.sums(), f"bank.fresh{number}"
        peer.tell(f"answer = spark_driver.hold(spark, {fresh!r})")
        held = peer.answer()
        # Its heart beats: it outlives the time-out.
        time.sleep(4.5)
        assert bank.folders()
        assert bank.sums() == before
        kill(peer)
        deadline = time.monotonic() + 30
        while bank.folders() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert bank.folders() == []
        assert bank.sums() == before
        assert fresh not in bank.catalog.tables()
        assert held not in {entry["txnId"] for entry in bank.catalog.history(ACCOUNTS[0])}
        assert {path for path in bank.lake.rglob("*.parquet") if "_dldb" not in path.parts} == files
        # Whatever it had begun to create can be created.
        with dls.begin(accounts) as tx:
            tx.sql(f"create table {{{fresh}}} (id long) using delta")
        assert tx.result == {fresh: 0}


def test_a_transaction_goes_on_when_its_endpoint_dies_at_a_step_and_is_made_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.version
    bank = Bank(tmp_path)
    served = ServedCatalog(bank.uri, bank.lake, tmp_path / "endpoint.log")
    served.start()
    session = dls.session(endpoint=served.url, token=TOKEN)
    spark_driver.open_accounts(session)
    moved = 0
    try:
        for number, step in enumerate(ENDPOINT_KILLS):
            served.stop()
            served.start(kill_at=step)
            watch = served.start_again_when_dead()
            with dls.begin(session) as tx:
                spark_driver.move(session, tx, 1, identifier=number + 1)
            watch.join(60)
            assert set(tx.result) == set(ACCOUNTS)
            moved += 1
            assert bank.sums() == [START - moved, START + moved], step
        Leftovers(bank.catalog).collect(lambda _id: False, dead_seconds=0)
        assert bank.folders() == []
        bank.check_level()
        with dls.begin(session) as tx:
            spark_driver.move(session, tx, 1, identifier=1_000)
        assert bank.sums() == [START - moved - 1, START + moved + 1]
    finally:
        served.stop()
        bank.catalog.close()


@pytest.mark.slow
def test_a_stream_that_is_killed_and_started_again_writes_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    bank = Bank(tmp_path)
    files = 2 * len(STREAM_KILLS) + 1
    spark_driver.deliver(tmp_path / "in", files, ROWS)
    with bank.catalog.begin() as tx:
        tx.create_table(SINKS[0], "id long")
        tx.create_table(SINKS[1], "id long, rows long")
    arguments = f"{str(tmp_path / 'in')!r}, {str(tmp_path / 'checkpoint')!r}"
    for number, step in enumerate(STREAM_KILLS):
        peer = Peer(tmp_path / f"peer{number}")
        peer.tell(
            "from tests.faults import spark_driver\n"
            f"spark = sessions.bridged({bank.uri!r}, {str(bank.lake)!r})\n"
            f"spark_driver.kill_at({step!r})\n"
            f"answer = spark_driver.stream(spark, {arguments})"
        )
        with pytest.raises(AssertionError, match="ended or did not answer"):
            peer.answer()
        assert peer._process.wait(60) == -signal.SIGKILL
        peer.close()
        _check_stream(bank, whole=False)
    ran = spark_driver.stream(dls.session(bank.catalog), str(tmp_path / "in"), str(tmp_path / "checkpoint"))
    assert ran > 0
    _check_stream(bank, whole=True, rows=files * ROWS)
    bank.check_level()
    Leftovers(bank.catalog).collect(lambda _id: False, dead_seconds=0)
    assert bank.folders() == []
    bank.catalog.close()


def _check_stream(bank: Bank, *, whole: bool, rows: int = 0) -> None:
    """At any moment each row that is there is there once, and the totals are those of the rows."""
    ids = sorted(bank.catalog.table(SINKS[0]).to_pyarrow_table()["id"].to_pylist())
    totals = bank.catalog.table(SINKS[1]).to_pyarrow_table().to_pylist()
    assert ids == list(range(len(ids)))
    assert {row["id"]: row["rows"] for row in totals} == {remainder: len(ids) // 3 for remainder in range(3) if ids}
    if whole:
        assert len(ids) == rows
