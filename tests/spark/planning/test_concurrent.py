"""A statement during which another writer commits ends as on plain delta-spark: the same rows, or the same conflict."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.planning.test_statements import rows
from tests.spark.planning.twins import Twins, new_twins, written
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

SECONDS: Final = 120
STATEMENTS: Final[Mapping[str, str]] = {
    "delete": "delete from {t} where id = 1 and waited(id)",
    "update": "update {t} set n = 0 where p = 'p1' and id < 9 and waited(id)",
    "merge": "merge into {t} t using (select 1L id) s on t.id = s.id and t.p = 'p1' and waited(t.id) "
    "when matched then update set n = 0",
}
OTHERS: Final[Mapping[str, str]] = {
    "appends elsewhere": "insert into {t} " + rows(200, 201, 1),
    "deletes elsewhere": "delete from {t} where p = 'p2' and id = 5",
    "deletes there": "delete from {t} where p = 'p1' and id = 4",
}
CASES: Final = [
    ("delete", "appends elsewhere", "WriteSerializable"),
    ("merge", "deletes there", "WriteSerializable"),
    ("update", "deletes elsewhere", "Serializable"),
]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_concurrent_commit_ends_a_statement_as_on_plain_delta(
    shop: Shop, tmp_path: Path, case: tuple[str, str, str]
) -> None:
    statement, other, level = case
    if level == "Serializable":
        table = f"'delta.isolationLevel' = '{level}', 'delta.enableDeletionVectors' = 'false'"
    else:
        table = "'delta.enableDeletionVectors' = 'true'"
    twins = new_twins(shop, tmp_path, written(
        "create table {t} (id bigint, p string, v double, n decimal(9,2), d date, s struct<a: int>) using delta "
        f"partitioned by (p) tblproperties ({table})", f"insert into {{t}} {rows(0, 12, 1)}",
    ))  # fmt: skip
    before = twins.versions()
    ends = [
        _run_beside(twins, tmp_path / f"side{side}", STATEMENTS[statement], OTHERS[other], table)
        for side, table in enumerate(twins.tables)
    ]
    assert ends[0] == ends[1]
    assert ends[0] == "committed" or "Concurrent" in ends[0]
    twins.check_since(before)


def _run_beside(twins: Twins, folder: Path, statement: str, other: str, table: str) -> str:
    """How the statement ended, after the other one was committed between its snapshot and its commit."""
    folder.mkdir()
    started, done, left = folder / "started", folder / "done", str(folder)

    def wait(value: int) -> bool:
        """In a worker of Spark: what is waited for are files."""
        from pathlib import Path

        (Path(left) / "started").touch()
        for _ in range(SECONDS * 20):
            if (Path(left) / "done").exists():
                return True
            time.sleep(0.05)
        raise TimeoutError(value)

    def commit() -> None:
        for _ in range(SECONDS * 20):
            if started.exists():
                break
            time.sleep(0.05)
        try:
            twins.spark.sql(other.replace("{t}", table)).collect()
        except Exception as error:  # the test fails with it
            raised.append(error)
        finally:
            done.touch()

    raised: list[Exception] = []
    twins.spark.udf.register("waited", F.udf(lambda value: wait(value), "boolean"))
    beside = threading.Thread(target=commit)
    beside.start()
    try:
        twins.spark.sql(statement.replace("{t}", table)).collect()
        end = "committed"
    except Exception as error:  # a conflict: both sides must end alike
        end = _kind_of(error)
    finally:
        beside.join()
    assert raised == []
    assert started.exists(), "the statement never came to the rows"
    return end


def _kind_of(error: Exception) -> str:
    """The exception of Delta, which PySpark may wrap; of any other also what it says."""
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.toString())
        return text.partition(":")[0] if "Concurrent" in text else text
    return type(error).__name__ if "Concurrent" in type(error).__name__ else repr(error)
