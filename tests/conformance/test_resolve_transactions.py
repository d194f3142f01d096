"""What commits share with others survives a resolution: transactions over several tables, row ids, plans."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import ExternalWriterError
from deltalakedb.mirror.follow import attach
from deltalakedb.mirror.promote import promote
from deltalakedb.mirror.resolve import resolve
from deltalakedb.mirror.validate import validate
from deltalakedb.store.connection import Store
from tests.conformance.lives import append, foreign_append, foreign_commit, mirror, read_ids, row_of
from tests.fixtures.handmade import HandmadeTable, add


def test_a_transaction_over_two_tables_stays_one_when_one_of_them_is_resolved(target: str, tmp_path: Path) -> None:
    rows = [pa.table({"id": [number]}) for number in range(4)]
    with dl.connect(target, warehouse=str(tmp_path / "lake"), mirror={"mode": "off"}) as cat:
        with cat.begin() as tx:
            tx.write("a", rows[0])
            tx.write("b", rows[1])
        folder = Path(cat.table("a").table_uri.removeprefix("file://"))
        cat.mirror.mirror_table(row_of(cat.store, "a"))
        cat.mirror.flush()
        with cat.begin(message="both") as tx:
            tx.write("a", rows[2], mode="append")
            tx.write("b", rows[3], mode="append")
        foreign_append(folder, tmp_path / "scratch", 20)
        with pytest.raises(ExternalWriterError):
            cat.mirror.mirror_table(row_of(cat.store, "a"))
        done = cat.resolve_table("a", "adopt")
        assert [one.txn_id for one in done.recommitted] == [tx.txn_id]
        versions = cat.sql(f"select version from dl_table_versions where txn_id = '{tx.txn_id}' order by version")
        assert versions.column("version").to_pylist() == [1, 2], "version 1 of b, now version 2 of a"
        view = cat.at(tx.txn_id)
        assert (view.table("a").version(), view.table("b").version()) == (2, 1)
        assert read_ids(folder) == [0, 2, 20]
        assert cat.table("a").plan("id = 20").num_files == 1
        with cat.begin() as tx:
            tx.write("a", rows[3], mode="append")
        assert tx.result == {"default.a": 3}


def test_no_two_files_share_row_ids_after_a_resolution(store: Store, handmade: HandmadeTable) -> None:
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":4}', "removed": False}
    features = ["appendOnly", "invariants", "domainMetadata", "rowTracking"]
    handmade.create(**{"delta.enableRowTracking": "true"}).commit(
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        add("a", records=5, baseRowId=0, defaultRowCommitVersion=1),
        {"domainMetadata": domain},
    )
    table = promote(store, attach(store, str(handmade.path), namespace="default", name="t").table).table
    append(store, table, handmade.path, 1, 2)
    append(store, table, handmade.path, 3)
    theirs = add("theirs", records=10, baseRowId=5, defaultRowCommitVersion=3)
    foreign_commit(
        handmade.path,
        json.dumps({"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}),
        json.dumps(theirs),
        json.dumps({"domainMetadata": domain | {"configuration": '{"rowIdHighWaterMark":14}'}}),
    )
    resolve(store, table, "adopt")
    with store.read() as conn:
        files = conn.sql(
            "select base_row_id, default_row_commit_version as since, num_records from dl_add_files "
            "where removed_version = 9223372036854775807 order by base_row_id"
        )
        domains = conn.all("select_domain_metadata", table_id=table.table_id, version=9)
    assert [(row["base_row_id"], row["since"], row["num_records"]) for row in files] == [
        (0, 1, 5),
        (5, 3, 10),
        (15, 4, 2),
        (17, 5, 1),
    ]
    assert [json.loads(row["configuration"]) for row in domains] == [{"rowIdHighWaterMark": 17}]
    mirror(store, row_of(store))
    assert validate(store, row_of(store)).drift is None
