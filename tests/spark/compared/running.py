"""Runs a script in a session, and says what each statement did in a form that two sessions can be compared by."""

import ast
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable, IdentityGenerator
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.compared.scripts import Script, Statement, read_scripts
from tests.spark.compared.volatile import steady, steady_text

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)?)\]")
_ORDERED = re.compile(r"\s*(show|desc|describe|explain)\b|.*\border by\b", re.IGNORECASE | re.DOTALL)
_STREAM_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Places:
    """Where a session keeps tables: in its warehouses (Spark's own, the catalog's), and by path in `lake`."""

    directory: Path
    lake: str
    warehouses: tuple[str, ...]

    def fill(self, text: str, database: str) -> str:
        return text.replace("$db", database).replace("$dir", str(self.directory)).replace("$lake", self.lake)

    def names(self) -> dict[str, str]:
        """What stands for the folders in results; a table's path is the same however it is spelled."""
        spelled = {self.lake.removeprefix("dldb:///file"): "$lake", str(self.directory): "$dir"}
        spelled |= dict.fromkeys(self.warehouses, "$warehouse")
        schemes = ("dldb:///file", "dldb:/file", "file://", "file:", "")
        return {scheme + path: name for path, name in spelled.items() for scheme in schemes}


def run_script(spark: SparkSession, script: Script, places: Places) -> list[dict[str, Any]]:
    """What every statement did, and the rows of the database's tables at the end."""
    before, database = dict(spark.conf.getAll), script.database
    places.directory.mkdir(parents=True, exist_ok=True)
    spark.sql(f"create database if not exists {database}")
    spark.sql(f"use {database}")
    runner = _Runner(spark, database, places)
    try:
        results = [runner.run(statement) for statement in script.statements]
        return [*results, *runner.tables_after()]
    finally:
        spark.sql("use default")
        for view in spark.sql("show views").collect():
            if view.isTemporary and not view.namespace:
                spark.catalog.dropTempView(view.viewName)
        spark.catalog.clearCache()
        after = dict(spark.conf.getAll)
        for key in after.keys() - before.keys():
            spark.conf.unset(key)
        for key, value in before.items():
            if after.get(key) != value:
                spark.conf.set(key, value)


class _Runner:
    def __init__(self, spark: SparkSession, database: str, places: Places) -> None:
        self._spark, self._database, self._places = spark, database, places
        self._names: dict[str, Any] = {
            "spark": spark, "F": F, "DeltaTable": DeltaTable, "IdentityGenerator": IdentityGenerator, "drain": drain,
            "batches": [],
        }  # fmt: skip

    def run(self, statement: Statement) -> dict[str, Any]:
        code = self._places.fill(statement.code, self._database)
        try:
            value = self._evaluate(code) if statement.is_python else self._spark.sql(code)
            return {"statement": statement.text, **self._describe(value, _ORDERED.match(code) is not None)}
        except Exception as error:  # whatever it is, the other side must raise the same
            return {"statement": statement.text, **self._describe_error(error)}

    def tables_after(self) -> list[dict[str, Any]]:
        shown = self._spark.sql(f"show tables in {self._database}").collect()
        names = sorted(row.tableName for row in shown if not row.isTemporary)
        return [self.run(Statement(f"select * from $db.`{name}`")) for name in names]

    def _evaluate(self, code: str) -> object:
        """The value of the last expression, as a notebook shows it."""
        parsed = ast.parse(code)
        last = parsed.body[-1]
        if not isinstance(last, ast.Expr):
            exec(code, self._names)
            return None
        exec(compile(ast.Module(parsed.body[:-1], []), "statement", "exec"), self._names)
        return eval(compile(ast.Expression(last.value), "statement", "eval"), self._names)

    def _describe(self, value: object, is_ordered: bool) -> dict[str, Any]:
        if not isinstance(value, DataFrame):
            return {"value": self._steady(value)}
        if value.isStreaming:
            return {"schema": value.schema.simpleString()}
        rows = [self._steady(row) for row in value.collect()]
        return {"schema": value.schema.simpleString(), "rows": rows if is_ordered else sorted(rows, key=repr)}

    def _describe_error(self, error: Exception) -> dict[str, Any]:
        message = steady_text(str(error), self._places.names())
        conditions = list(dict.fromkeys(_CONDITION.findall(message)))
        kind = type(error).__name__
        if isinstance(error, PySparkException):
            conditions = [error.getCondition() or "", *(one for one in conditions if one != error.getCondition())]
        elif isinstance(error, Py4JJavaError):
            kind += " " + error.java_exception.getClass().getName()
        return {"raised": kind, "conditions": conditions[:2], "message": message[:600]}

    def _steady(self, value: object) -> Any:
        return steady(value, self._places.names(), datetime.now(UTC).replace(tzinfo=None))


def drain(writer: DataStreamWriter, path: str | None = None, *, table: str | None = None) -> None:
    """Run a stream until it has seen all that is there."""
    query = writer.start(path) if table is None else writer.toTable(table)
    try:
        assert query.awaitTermination(_STREAM_SECONDS), "the stream did not end"
    finally:
        query.stop()


def run_plain(spark: SparkSession, name: str, directory: str) -> list[dict[str, Any]]:
    """The script of this name in a session of plain delta-spark, whose warehouse Spark's own setting names."""
    (script,) = (one for one in read_scripts() if one.name == name)
    return run_script(spark, script, Places(Path(directory), f"{directory}/paths", (own_warehouse(spark),)))


def own_warehouse(spark: SparkSession) -> str:
    """Where Spark's own catalog keeps tables."""
    return str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
