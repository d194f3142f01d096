"""The bridge over s3a, in a process of its own: Hadoop's S3 client comes with jars that no other test needs."""

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.log.fence import FEATURE
from tests.fixtures.s3 import S3
from tests.spark.judging import OURS
from tests.spark.over_s3 import peer_over_s3
from tests.spark.peer import Peer

pytestmark = pytest.mark.spark


@pytest.fixture
def peer(s3: S3, tmp_path: Path) -> Iterator[Peer]:
    with peer_over_s3(s3, tmp_path / "peer") as other:
        yield other


def test_tables_on_s3_are_created_written_and_read(
    s3: S3, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in s3.storage_options.items():
        monkeypatch.setenv(key, value)
    uri, warehouse = str(tmp_path / "catalog.db"), s3.uri("lake")
    peer.ask(f"spark = sessions.bridged({uri!r}, {warehouse!r})")
    peer.sql(
        "create table sales.orders using delta partitioned by (day) as select * from values "
        "(1L, '2026-01-01', 1.0D), (2L, '2026-01-02', 2.0D), (3L, '2026-01-02', 3.0D) as v(id, day, amount)",
        "update sales.orders set amount = 20 where id = 2",
        "merge into sales.orders t using (select 3L as id) s on t.id = s.id when matched then delete",
    )
    path = f"dldb:///s3a/{s3.bucket}/lake/sales/orders"
    peer.ask(
        f"spark.createDataFrame([(4, 'a b/c', 4.0)], 'id long, day string, amount double')"
        f".write.format('delta').mode('append').save({path!r})"
    )
    wanted = [[1, "2026-01-01", 1.0], [2, "2026-01-02", 20.0], [4, "a b/c", 4.0]]
    assert sorted(peer.sql("select * from sales.orders")) == wanted
    assert peer.sql("select count(*) from sales.orders version as of 0") == [[3]]
    with dl.connect(uri, warehouse=warehouse) as catalog:
        table = catalog.table("sales.orders")
        assert table.table_uri == f"{warehouse}/sales/orders/"
        assert table.version() == 3
        assert sorted(list(row.values()) for row in table.to_pyarrow_table().to_pylist()) == wanted
        report = catalog.validate("sales.orders", s3.storage_options)
        assert (report.drifts, report.lag) == ((), 0)
    mirrored = deltalake.DeltaTable(f"{warehouse}/sales/orders", storage_options=s3.storage_options)
    assert sorted(list(row.values()) for row in mirrored.to_pyarrow_table().to_pylist()) == wanted
    assert FEATURE in (mirrored.protocol().writer_features or ())
    log = [key for key in s3.list_keys() if "/_delta_log/" in key]
    assert [key for key in log if not OURS.fullmatch(key.rpartition("/")[2])] == []
    checksums = [key for key in log if key.endswith(".crc")]
    texts = [s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read().decode() for key in checksums]
    assert all(FEATURE in text for text in texts), "these are the mirror's; Spark's are in the overlay"
