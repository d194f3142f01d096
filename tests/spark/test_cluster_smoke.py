"""One small job on a standalone cluster of two workers; `make test-full` does far more (tests/cluster)."""

from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.serve.server import Endpoint
from tests.fixtures.cluster import running_cluster
from tests.spark.peer import Peer

pytestmark = pytest.mark.spark

TOKEN = "the-token-of-the-tests"


def test_a_job_on_a_cluster_writes_and_reads_tables_of_the_catalog(tmp_path: Path) -> None:
    with (
        dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as catalog,
        Endpoint(catalog, token=TOKEN) as endpoint,
        running_cluster(tmp_path / "cluster") as cluster,
    ):
        driver = Peer(tmp_path / "driver", **cluster.conf(tmp_path / "driver"))
        try:
            driver.ask(
                "import deltalakedb.spark as dls\n"
                f"spark = dls.session(endpoint={endpoint.url!r}, token={TOKEN!r}, **sessions._settings)"
            )
            driver.sql(
                "create table shop.items (id long, name string) using delta",
                "insert into shop.items select id, concat('item ', id) from range(0, 100, 1, 4)",
                "merge into shop.items t using (select id * 2 id from range(40, 60, 1, 4)) s on t.id = s.id "
                "when matched then update set name = 'sold' "
                "when not matched then insert (id, name) values (s.id, 'new')",
            )
            counted = driver.sql(
                "select name in ('sold', 'new') changed, count(*) from shop.items group by 1 order by 1"
            )
            assert counted == [[False, 90], [True, 20]]
            assert driver.ask("answer = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()") == 3
        finally:
            driver.close()
        assert catalog.table("shop.items").version() == 2
        rows = deltalake.DeltaTable(str(tmp_path / "lake" / "shop" / "items")).to_pyarrow_table().to_pylist()
        assert sorted(row["id"] for row in rows) == sorted([*range(100), *range(100, 120, 2)])
