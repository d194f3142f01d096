"""Plans go through the index: a scan of all bounds or all files would cost a thousand times a probe."""

import re

import pytest

from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.store import Store
from deltalakedb.store.planning import plan_statement
from tests.conformance.test_planning_cases import XYS, spread
from tests.fixtures.planned import TableInStore, metadata_of

# On hash partitions (docs/scale.md) Postgres names the partitions' indexes itself.
INDEX = re.compile(r"dl_file_bounds(_by|_p\d+_table_id_epoch)")
EXPLAIN = {"sqlite": "explain query plan ", "postgres": "explain "}
SCAN = {"sqlite": re.compile(r"\bSCAN (b|f|dl_\w+)\b"), "postgres": re.compile(r"Seq Scan on dl_\w+|Hash (Semi )?Join")}
PREDICATES = [
    "x = 12345",
    "x between 12000 and 13000",
    "x in (5, 500, 5000, 12345)",
    "x between 12000 and 13000 and y = -1234",
    "x >= 0 and x < 20000 and y > -1500 and y <= 0",
    "x = 5 or y = -1000",
    "s = 'k01234a'",
    "s like 'k0123%' and x is not null",
    "x in (" + ", ".join(str(n) for n in range(0, 30000, 100)) + ")",
]


@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
def test_every_plan_goes_through_the_index(store: Store, analyzed: bool) -> None:
    if store.name not in EXPLAIN:
        return  # DuckDB scans one column's bounds; no index of its own could be asked
    stored = TableInStore(store)
    opened = stored.commit([Protocol(1, 2), metadata_of(XYS, ()), *spread(3000)])
    if analyzed:
        with store.write() as conn:
            conn.script(["analyze"])
    for text in PREDICATES:
        with store.read() as conn:
            statement = plan_statement(conn, opened, parse_predicate(text, XYS))
            rows = conn.sql(EXPLAIN[store.name] + statement.text, **statement.parameters)
        shown = "\n".join(str(row.get("detail") or row.get("QUERY PLAN")) for row in rows)
        assert not SCAN[store.name].search(shown), f"{text}\n{shown}"
        assert INDEX.search(shown), f"{text}\n{shown}"
