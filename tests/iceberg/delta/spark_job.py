"""What Spark reads of the Delta table `lake.shop.t` of an Iceberg REST endpoint; prints one JSON object of it."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.iceberg.clients.spark_job import session


def main(uri: str, planning: str) -> None:
    spark = session(uri, **{"spark.sql.catalog.lake.scan-planning-mode": planning, "spark.sql.session.timeZone": "UTC"})
    seen: dict[str, Any] = {}

    def rows(query: str) -> list[Any]:
        return [list(row) for row in spark.sql(query).collect()]

    snapshots = rows("select snapshot_id, summary['delta.version'] from lake.shop.t.snapshots order by committed_at")
    seen["versions"] = {
        version: rows(f"select * from lake.shop.t version as of {snapshot} order by id")
        for snapshot, version in snapshots
    }
    seen["tag"] = rows("select count(*) from lake.shop.t version as of 'v1'")
    seen["history"] = len(rows("select * from lake.shop.t.history"))
    seen["files"] = rows("select record_count, content from lake.shop.t.files order by content, record_count")
    seen["manifests"] = len(rows("select * from lake.shop.t.manifests"))
    seen["entries"] = len(rows("select * from lake.shop.t.entries"))
    seen["partitions"] = rows("select partition.p, record_count from lake.shop.t.partitions order by 1")
    seen["filtered"] = rows("select id from lake.shop.t where p = 'p 1' and x > 1 order by id")
    seen["by_day"] = rows("select id from lake.shop.t where day >= date '2024-01-03' order by id")
    seen["ends"] = rows("select min(id), max(id), cast(min(at) as string), cast(max(at) as string) from lake.shop.t")
    print(json.dumps(seen, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
