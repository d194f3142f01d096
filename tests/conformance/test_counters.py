"""The law of counters: head, snapshots, checksums, checkpoints and files add up to a recount, at every version.

The judge is the generator of the history, which shares no code with what it judges.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from deltalakedb import Catalog
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.actions import FileKey
from deltalakedb.log.protocol.codec import deletion_vector_from_json
from deltalakedb.store import registry as reg
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.transacting import open_catalog
from tests.fixtures.random_log import RandomLog, State
from tests.fixtures.sizes import sized

NAME = "lab.random"
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.feature.domainMetadata": "supported",
    "delta.checkpointInterval": "7",
}


def create(catalog: Catalog) -> reg.TableRow:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    catalog.create_table(NAME, schema, ["day"], properties=PROPERTIES)
    return row_of(catalog)


def row_of(catalog: Catalog) -> reg.TableRow:
    with catalog.store.read() as conn:
        row = reg.resolve_table(conn, *NAME.split("."))
    assert row is not None
    return row


def head_counters(catalog: Catalog, row: reg.TableRow) -> tuple[int, int, int, int, int]:
    with catalog.store.read() as conn:
        head = reg.read_head(conn, row.table_id)
    assert head is not None
    return (head.current_version, head.num_files, head.size_bytes, head.num_records, head.files_without_records)


def keys_of(files: pa.Table) -> dict[FileKey, int]:
    found = {}
    for row in files.select(["path", "deletion_vector", "size"]).to_pylist():
        vector = row["deletion_vector"]
        found[(row["path"], deletion_vector_from_json(vector).unique_id if vector else "")] = row["size"]
    return found


def write_history(catalogs: list[Catalog], row: reg.TableRow, log: RandomLog, chance: Random, count: int) -> None:
    """So many versions, one or several a transaction, by whichever process has its turn."""
    while len(log.states) <= count:
        catalog = chance.choice(catalogs)
        with catalog.begin() as tx:
            for _ in range(chance.choice([1, 1, 1, 2, 3])):
                tx.commit_actions(NAME, log.next(), read="table", operation="RANDOM")
        assert head_counters(catalog, row) == (len(log.states) - 1, *log.states[-1].counters)


@pytest.mark.parametrize("seed", range(sized(1, 50)))
def test_at_every_version_of_a_random_history_everything_equals_a_recount(
    target: str, tmp_path: Path, seed: int
) -> None:
    log, chance = RandomLog(seed), Random(seed)
    with open_catalog(target, tmp_path) as one, open_catalog(target, tmp_path, mirror_mode="background") as other:
        row = create(one)
        log.go_on_from(one.table(NAME)._snapshot.metadata)
        write_history([one, other], row, log, chance, sized(16, 24))
    with open_catalog(target, tmp_path) as catalog:
        catalog.mirror.mirror_table(row)
        reader = SqlTxnLogReader(catalog.store, row)
        files = FileTxnLogReader(row.location)
        for version, state in enumerate(log.states):
            snapshot = reader.snapshot(version)
            totals = snapshot.totals()
            counted = (totals.num_files, totals.size_bytes, totals.num_records, totals.files_without_records)
            assert counted == state.counters, version
            assert keys_of(snapshot.files_table()) == {key: add.size for key, add in state.files.items()}, version
            check_files(files, row, version, state)
        report = catalog.validate(NAME)
    assert report.drifts == ()
    assert (report.num_commits_compared, report.num_checkpoints_compared) == (len(log.states), 1)
    assert report.num_checksums_compared == len(log.states)


def check_files(files: FileTxnLogReader, row: reg.TableRow, version: int, state: State) -> None:
    """What a Delta reader is told of a version: by replay, and by its checksum."""
    snapshot = files.snapshot(version)
    assert keys_of(snapshot.files().read_all()) == {key: add.size for key, add in state.files.items()}, version
    assert {app: txn.version for app, txn in snapshot.app_transactions().items()} == state.app_versions
    assert {name: domain.configuration for name, domain in snapshot.domain_metadata().items()} == state.domains
    folder = Path(row.location.removeprefix("file://")) / "_delta_log"
    checksum = json.loads((folder / f"{version:020d}.crc").read_text())
    num_files, size_bytes, *_ = state.counters
    assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (num_files, size_bytes), version
    assert checksum["metadata"]["configuration"] == dict(state.metadata.configuration)
