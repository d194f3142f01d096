"""What the catalog refuses reaches PySpark as an AnalysisException, or as Delta's own class, in one line of advice."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.exceptions import (
    FilesVacuumedError,
    MetadataChangedError,
    NotWritableError,
    StoreError,
    TableLockedError,
)
from deltalakedb.serve.bridge.log import BridgedLog

Bridge = Callable[[dl.Catalog], SparkSession]


@pytest.fixture(scope="module")
def ns(spark: SparkSession) -> str:
    name = f"refused_{uuid.uuid4().hex[:8]}"
    spark.sql(f"create table {name}.t using delta as select 1L as id")
    spark.sql(f"create table {name}.kept (id int) using delta tblproperties ('drop_protection' = 'true')")
    return name


def one_line(error: BaseException) -> str:
    text = str(error).strip()
    assert "\n" not in text, text
    assert "io.deltalakedb" not in text
    return text


STATEMENTS = {
    "protected": ("drop table {ns}.kept", "Set it to false first"),
    "location taken": ("create table {ns}.u (id int) using delta location '{t}'", "choose another one"),
    "inside another": ("create table {ns}.u (id int) using delta location '{t}/in'", "must not contain each other"),
    "set location": ("alter table {ns}.t set location '/elsewhere'", "DROP TABLE, then CREATE TABLE"),
    "undrop": ("undrop table {ns}.never", "never dropped, was purged"),
    "undrop a path": ("undrop table delta.`/a/b`", "by their names"),
    "credential": ("alter table {ns}.t set tblproperties ('db.password' = 'hunter2')", "looks like a credential"),
    "control character": ("create table {ns}.`a\tb` (id int) using delta", "control character"),
    "no bridge path": ("create table delta.`dldb:///s3a` (id int) using delta", "is no path of the bridge"),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_a_statement_is_refused_in_one_line(
    spark: SparkSession, bridge_catalog: dl.Catalog, ns: str, case: str
) -> None:
    statement, advice = STATEMENTS[case]
    root = bridge_catalog.table(f"{ns}.t").table_uri.removeprefix("file://").rstrip("/")
    before = bridge_catalog.tables(ns)
    with pytest.raises(AnalysisException) as refused:
        spark.sql(statement.format(ns=ns, t=root))
    assert advice in one_line(refused.value)
    assert (bridge_catalog.tables(ns), bridge_catalog.table(f"{ns}.t").version()) == (before, 0)


def test_a_frozen_table_says_how_to_go_on(spark: SparkSession, bridge_catalog: dl.Catalog, ns: str) -> None:
    spark.sql(f"create table {ns}.frozen using delta as select 1L as id")
    bridge_catalog.mirror.flush(30)
    root = Path(bridge_catalog.table(f"{ns}.frozen").table_uri.removeprefix("file://"))
    (root / "_delta_log" / f"{1:020}.json").write_text('{"commitInfo":{"operation":"foreign"}}\n')
    for _ in range(2):  # it is frozen by the first, and is so at the second
        with pytest.raises(AnalysisException) as refused:
            spark.sql(f"insert into {ns}.frozen values (2)")
        assert "dl mirror resolve" in one_line(refused.value)


def assert_conflict(error: Any, kind: str, advice: str) -> None:
    """Delta's own class; its Python package, if it is there, makes an exception of Python's of it."""
    if isinstance(error, Py4JJavaError):
        raised = error.java_exception
        assert raised.getClass().getName() == f"io.delta.exceptions.{kind}"
        assert advice in one_line(Exception(raised.getMessage()))
    else:
        assert type(error).__name__ == kind
        assert advice in one_line(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MetadataChangedError("the table changed; run it again"), "MetadataChangedException"),
        (FilesVacuumedError("files are gone; run it again"), "ConcurrentWriteException"),
        (TableLockedError("another one rewrites it; run it again"), "ConcurrentWriteException"),
        (NotWritableError("the table is detaching; run it again"), None),
        (StoreError("the database is away; run it again"), None),
    ],
)
def test_an_error_of_a_commit_keeps_its_meaning(
    bridge: Bridge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str | None
) -> None:
    def fail(*_args: object) -> None:
        raise error

    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as catalog:
        spark = bridge(catalog)
        spark.conf.set("deltalakedb.retry.seconds", "1")
        spark.sql("create table a.t (id bigint) using delta")
        with monkeypatch.context() as patch:
            patch.setattr(BridgedLog, "commit", fail)
            with pytest.raises((PySparkException, Py4JJavaError)) as refused:
                spark.sql("insert into a.t values (1)")
        if kind is None:
            assert isinstance(refused.value, AnalysisException)
            assert "run it again" in one_line(refused.value)
        else:
            assert_conflict(refused.value, kind, "run it again")
        assert catalog.table("a.t").version() == 0
        spark.sql("insert into a.t values (1)")
        assert catalog.table("a.t").version() == 1


def test_a_table_that_is_dropped_under_a_statement_is_a_conflict_or_not_found(
    spark: SparkSession, bridge_catalog: dl.Catalog, ns: str
) -> None:
    """Whatever the moment, PySpark is told in a class that it knows."""
    spark.sql(f"create table {ns}.going using delta as select id from range(3)")
    errors: list[BaseException] = []

    def write() -> None:
        for number in range(20):
            try:
                spark.sql(f"insert into {ns}.going values ({number})")
            except Exception as error:
                errors.append(error)
                return

    writer = threading.Thread(target=write)
    writer.start()
    bridge_catalog.drop_table(f"{ns}.going")
    writer.join(120)
    assert len(errors) == 1
    known = isinstance(errors[0], AnalysisException)
    assert known or "io.delta.exceptions" in str(errors[0]), errors[0]
