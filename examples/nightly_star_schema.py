"""A nightly load of a star schema: two dimensions and a fact table, in one transaction a night. `make demo` shows it.

Whoever reads the tables meanwhile, with whatever reader, sees all of last night or all of tonight, never a fact whose
customer is not there yet. A night that fails half way leaves nothing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

import deltalakedb as dl
import deltalakedb.spark as dls

LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    # What these queries cost on small data is planning and compiling, not rows.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Small data on one machine: a cluster needs none of these."""

DIMENSIONS = ("star.dim_customer", "star.dim_product")
FACT = "star.fact_sales"


@dataclass(frozen=True, slots=True)
class Night:
    """What the shop's systems hand over each night."""

    day: dt.date
    customers: DataFrame
    products: DataFrame
    sales: DataFrame


def extract(spark: SparkSession, number: int, sales: int = 20_000) -> Night:
    """A night's data, made up: every night a few customers move, prices rise, and new ones come along."""
    day = dt.date(2026, 1, 1) + dt.timedelta(days=number)
    customers = spark.range(200 + 20 * number).select(
        sf.col("id").alias("customer_no"),
        sf.format_string("customer %03d", "id").alias("name"),
        sf.when(sf.col("id") % 7 == number % 7, "Berlin").otherwise("Lisbon").alias("city"),
    )
    products = spark.range(50 + 5 * number).select(
        sf.col("id").alias("product_no"),
        sf.format_string("product %02d", "id").alias("name"),
        ((sf.col("id") % 20 + 1) * (1 + number / 10)).cast("decimal(8,2)").alias("price"),
    )
    receipts = spark.range(number * sales, (number + 1) * sales).select(
        sf.col("id").alias("receipt_no"),
        (sf.col("id") * 7919 % (200 + 20 * number)).alias("customer_no"),
        (sf.col("id") * 104729 % (50 + 5 * number)).alias("product_no"),
        (sf.col("id") % 5 + 1).cast("int").alias("quantity"),
    )
    return Night(day, customers, products, receipts)


def create_tables(spark: SparkSession) -> dict[str, int]:
    """The three tables, in one transaction too: there is never a fact table without its dimensions."""
    with dls.begin(spark, message="star schema") as tx:
        tx.sql("create table {star.dim_customer} (customer_no long, name string, city string) using delta")
        tx.sql("create table {star.dim_product} (product_no long, name string, price decimal(8,2)) using delta")
        tx.sql(
            "create table {star.fact_sales} (day date, receipt_no long, customer_no long, product_no long, "
            "quantity int, amount decimal(12,2)) using delta partitioned by (day)"
        )
    return tx.result


def load(spark: SparkSession, night: Night) -> dict[str, int]:
    """One night: both dimensions are merged, the facts priced by what the product dimension says by now."""
    with dls.begin(spark, message=f"load of {night.day}") as tx:
        tx.sql(
            "merge into {star.dim_customer} t using {customers} s on t.customer_no = s.customer_no "
            "when matched and (t.name, t.city) != (s.name, s.city) then update set * when not matched then insert *",
            customers=night.customers,
        )
        tx.sql(
            "merge into {star.dim_product} t using {products} s on t.product_no = s.product_no "
            "when matched and t.price != s.price then update set * when not matched then insert *",
            products=night.products,
        )
        priced = (
            night.sales.join(tx.table("star.dim_product"), "product_no")
            .withColumn("day", sf.lit(night.day))
            .withColumn("amount", (sf.col("quantity") * sf.col("price")).cast("decimal(12,2)"))
            .select("day", "receipt_no", "customer_no", "product_no", "quantity", "amount")
        )
        priced.write.format("delta").mode("append").save(tx.path(FACT))
    return tx.result


# -- the picture


console = Console()


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    table = Table(*columns, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print(table)


def sums(catalog: dl.Catalog, spark: SparkSession) -> list[tuple[str, str, str]]:
    """The same total by four readers: Spark by name, our SQL-backed table, and two that only know the files."""
    path = catalog.table(FACT).table_uri.removeprefix("file://")
    by_spark = spark.table(FACT).agg(sf.count("*"), sf.sum("amount")).first()
    assert by_spark is not None
    (by_duckdb,) = duckdb_with_delta().sql(f"select count(*), sum(amount) from delta_scan('{path}')").fetchall()
    answers = [
        ("Spark, by name", by_spark[0], by_spark[1]),
        ("deltalakedb", *_total(catalog.table(FACT).to_pyarrow_table())),
        ("deltalake, from the files", *_total(deltalake.DeltaTable(path).to_pyarrow_table())),
        ("DuckDB, from the files", *by_duckdb),
    ]
    return [(who, f"{rows:,}", f"{amount:,}") for who, rows, amount in answers]


def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    """DuckDB and its extension for Delta: from the wheel `duckdb-extension-delta` if that is there, else downloaded."""
    connection = duckdb.connect()
    wheel = find_spec("duckdb_extension_delta")
    if wheel is None or wheel.origin is None:
        connection.execute("install delta")
        connection.execute("load delta")
    else:
        folder = Path(wheel.origin).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"load '{folder / 'delta.duckdb_extension'}'")
    return connection


def _total(rows: pa.Table) -> tuple[int, Any]:
    return rows.num_rows, duckdb.sql("select sum(amount) from rows").fetchall()[0][0]


def picture(catalog: dl.Catalog, spark: SparkSession, timings: Sequence[tuple[str, float, dict[str, int]]]) -> None:
    """What happened: transactions with their versions and times, tables, and what other readers make of the files."""
    tables = (*DIMENSIONS, FACT)
    short = [name.partition(".")[2] for name in tables]
    show(
        "Transactions",
        ("what", *short, "seconds"),
        [(what, *(f"v{versions[name]}" for name in tables), f"{took:.1f}") for what, took, versions in timings],
    )
    infos = [catalog.table(name) for name in tables]
    show(
        "Tables",
        ("table", "version", "rows", "files"),
        [(name, t.version(), f"{t.count():,}", t.files().num_rows) for name, t in zip(tables, infos, strict=True)],
    )
    answers = sums(catalog, spark)
    assert len({answer[1:] for answer in answers}) == 1, answers
    show("The fact table, read by four", ("reader", "rows", "sum of amounts"), answers)
    rows = []
    for entry in reversed(catalog.history(FACT)[: len(timings)]):
        then = catalog.at(entry["txnId"])
        rows.append((entry["deltalakedb"]["message"], *(f"{then.table(name).count():,}" for name in tables)))
    show("The whole catalog as it was after each transaction", ("after", *short), rows)


def timed(what: str, work: Callable[[], dict[str, int]]) -> tuple[str, float, dict[str, int]]:
    """What was done, in how many seconds, and to which versions it led."""
    started = time.perf_counter()
    versions = work()
    return what, time.perf_counter() - started, versions


def run(spark: SparkSession, catalog: dl.Catalog, nights: int = 3, sales: int = 20_000) -> None:
    """Create the tables, load some nights, fail one, and show it."""
    timings = [timed("star schema", lambda: create_tables(spark))]
    for number in range(nights):
        night = extract(spark, number, sales)
        timings.append(timed(f"night {number + 1}", partial(load, spark, night)))
    before = {name: catalog.table(name).version() for name in (*DIMENSIONS, FACT)}
    night = extract(spark, nights, sales)
    broken = night.sales.withColumn("quantity", sf.expr("assert_true(quantity < 5, 'a receipt is torn')").cast("int"))
    spark.sparkContext.setLogLevel("OFF")  # it is meant to fail: pages of the tasks' errors would hide the picture
    try:
        load(spark, Night(night.day, night.customers, night.products, broken))
    except PySparkException as error:
        console.print(
            f"night {nights + 1} fails in its third statement ({type(error).__name__}): nothing of it is there"
        )
    spark.sparkContext.setLogLevel("ERROR")
    assert before == {name: catalog.table(name).version() for name in (*DIMENSIONS, FACT)}
    picture(catalog, spark, timings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it there")
    parser.add_argument("--nights", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deltalakedb-star-") as scratch:
        root = (arguments.keep or Path(scratch)).resolve()
        with dl.connect(root / "catalog.db", warehouse=str(root / "lake")) as catalog:
            console.rule("[bold cyan]A nightly star-schema load: Spark, one transaction a night", align="left")
            started = time.perf_counter()
            spark = dls.session(catalog, **LOCAL)
            console.print(
                f"Spark {spark.version} with delta-spark and the bridge: {time.perf_counter() - started:.1f} s"
            )
            try:
                run(spark, catalog, arguments.nights)
            finally:
                spark.stop()
        if arguments.keep:
            console.print(f"left in {root}: try `DL_CATALOG={root / 'catalog.db'} .venv/bin/dl tables`")


if __name__ == "__main__":
    main()
