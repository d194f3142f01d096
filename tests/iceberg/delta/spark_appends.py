"""What Spark does with the Delta table `shop.t` of an Iceberg REST endpoint; prints one JSON object of what it saw."""

from __future__ import annotations

import json
import sys

from tests.iceberg.clients.spark_job import session


def main(uri: str) -> None:
    spark = session(uri)
    refused: dict[str, str] = {}
    spark.sql("insert into lake.shop.t values (2, 'a b', date'1969-12-31', 1.25), (3, null, null, null)")
    spark.sql("insert into lake.shop.t values (4, 'k+0', date'2024-02-29', -0.01)")
    for statement in (
        "delete from lake.shop.t where id = 1",
        "truncate table lake.shop.t",
        "update lake.shop.t set id = 5 where id = 1",
        "merge into lake.shop.t t using (select 1L as id) s on t.id = s.id when matched then delete",
        "insert overwrite lake.shop.t values (9, 'x', null, null)",
        "alter table lake.shop.t add column more int",
        "alter table lake.shop.t set tblproperties ('a' = 'b')",
        "insert into lake.shop.t values (-1, 'x', null, null)",
    ):
        try:
            spark.sql(statement)
        except Exception as error:  # the test judges its message
            refused[statement] = str(error)
    rows = [list(row) for row in spark.sql("select id, p from lake.shop.t order by id").collect()]
    print(json.dumps({"refused": refused, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1])
